"""What is said of a winner beside its number."""

import pytest

from tests.evening import end, folder, keep, launch, won
from tuner.definitions.validation import load_study
from tuner.engines.base import EngineFacts
from tuner.engines.warned import warnings_of
from tuner.records import Records
from tuner.verbs import inspect
from tuner.views.cautions import listed
from tuner.views.export import export
from tuner.views.forms import written

LOG = """\
(APIServer pid=7) INFO 12-01 13:56:34 [model.py:733] Resolved architecture: LlamaForCausalLM
(APIServer pid=7) WARNING 12-01 13:56:34 [arg_utils.py:3005] Not supported, may crash.
(Worker pid=9) WARNING 12-01 13:56:58 [cpu_worker.py:114] port 4711 is near api_key=s3cretvalue
(Worker pid=10) WARNING 12-01 13:56:59 [cpu_worker.py:114] port 4712 is near api_key=s3cretvalue
[2026-12-01 13:57:00 TP0] Warning: the fused path is off
/x/site-packages/y.py:24: DeprecationWarning: `y` goes away
  warnings.warn(
INFO: 127.0.0.1 asked for WARNING levels
"""


def test_each_warning_of_a_log_is_told_once_without_what_stands_before_it_or_secrets():
    assert warnings_of(LOG) == [
        "Not supported, may crash.",
        "port 4711 is near api_key=(hidden)",
        "the fused path is off",
        "`y` goes away",
    ]
    assert warnings_of("") == []


def test_a_flood_of_warnings_is_cut_and_so_is_a_long_one():
    words = [f"WARNING 1 [f.py:1] {'abcdefghij'[n % 10] * (n + 1)}" for n in range(500)]
    told = warnings_of("\n".join(words))
    assert len(told) == 50
    assert max(map(len, told)) <= 300


@pytest.fixture
def night(tmp_path):
    return folder(tmp_path)


def again(night, change) -> None:
    """The same night, each of its records changed."""
    won(night)
    records = list(Records(night))
    (night / "trials.jsonl").unlink()
    keep(night, *(record.model_copy(update=change(record)) for record in records))
    end(night)


def warned(texts, usual):
    def change(record):
        own = texts if record.values.get("chunked-prefill-size") == 8192 else []
        return {"facts": EngineFacts(warnings=[*usual, *own])}

    return change


def test_what_the_engine_warns_of_with_the_winner_alone_stands_beside_the_verdict(night):
    again(night, warned(["Chunk 8192 may crash in launch 3."], ["No triton in 4711."]))
    said = 'The engine warns, and does not with the baseline: "Chunk 8192 may crash in launch 3."'
    view = inspect.show(night)
    assert view.cautions == [said]
    chosen = export(load_study(night), list(Records(night)))
    assert chosen.cautions == [said]
    assert f"# {said}\n" in written(chosen, "shell")


def test_what_it_warns_of_with_the_baseline_too_is_not_said(night):
    again(night, warned(["No triton in 12."], ["No triton in 4711."]))
    assert inspect.show(night).cautions == []


def test_where_the_baseline_told_nothing_a_warning_is_not_the_winners(night):
    again(night, warned(["Chunk may crash."], []))
    assert inspect.show(night).cautions == []


def test_more_warnings_than_three_are_counted(night):
    again(night, warned([f"{letter} may crash." for letter in "abcde"], ["usual"]))
    (said,) = inspect.show(night).cautions
    assert said.endswith('"a may crash." "b may crash." "c may crash." And 2 more.')


def test_the_cores_that_it_was_measured_on_are_said_of_real_launches(night):
    def change(record):
        return {"server_cores": [0, 1, 2, 4], "client_cores": [5], "rehearsal": False}

    again(night, change)
    chosen = export(load_study(night), list(Records(night)))
    assert chosen.cautions == [
        "Measured with the servers on cores 0-2,4 and the load generator on 5: `taskset -c 0-2,4` "
        "before the command gives the same."
    ]
    again_rehearsed = [r.model_copy(update={"rehearsal": True}) for r in Records(night)]
    (night / "trials.jsonl").unlink()
    keep(night, *again_rehearsed)
    assert inspect.show(night).cautions == []


def test_changes_that_nobody_measured_alone_are_named(night):
    study = won(night)
    both = {"chunked-prefill-size": 8192, "attention-backend": "fa3"}
    keep(
        night,
        *(launch(study, n, "confirm" if n % 2 else "baseline", both if n % 2 else {},
                 gain=1.6 + n / 1e4 if n % 2 else 1.0) for n in range(11, 18)),
    )  # fmt: skip
    end(night)
    said, *_ = inspect.show(night).cautions
    assert said == (
        "Of its 2 changes, measured alone: attention-backend=fa3: no effect, from one launch; "
        "never measured alone: chunked-prefill-size=8192."
    )


@pytest.mark.parametrize(
    ("cores", "text"), [([3], "3"), ([0, 1], "0-1"), ([5, 0, 2, 1], "0-2,5"), ([], "")]
)
def test_cores_are_written_as_taskset_reads_them(cores, text):
    assert listed(cores) == text
