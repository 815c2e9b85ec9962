"""What is said of a winner beside its number."""

from pathlib import Path

import pytest

from tests.evening import end, folder, keep, launch, won
from tuner.definitions.validation import load_study
from tuner.engines.base import EngineFacts
from tuner.engines.warned import like, warnings_of
from tuner.records import Records
from tuner.verbs import inspect
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
(APIServer pid=7) INFO 12-01 13:57:01 [a.py:1] LEVEL=WARNING for [engine] workers
(APIServer pid=7) WARNING 12-01 13:57:02 [b.py:2] warm-up failed
(APIServer pid=7) WARNING 12-01 13:57:02 [b.py:2] Traceback (most recent call last):
(APIServer pid=7) WARNING 12-01 13:57:02 [b.py:2]
(APIServer pid=7) WARNING 12-01 13:57:02 [b.py:2]   File "c.py", line 3
2026-12-01 13:57:03,123 - WARNING - tuner.py:496 - kernels: [Auto]: Skipping tactic
[rank0]:[W1201 13:57:04.066 utils.cpp:68] Warning: NUMA binding
"""
CHAT_TEMPLATE = Path(__file__).parent / "data/failures/fourth_batch/vllm-chat-template-broken.log"


def test_each_warning_of_a_log_is_told_once_without_what_stands_before_it_or_secrets():
    assert warnings_of(LOG) == [
        "Not supported, may crash.",
        "port 4711 is near api_key=(hidden)",
        "the fused path is off",
        "`y` goes away",
        "warm-up failed",
        "kernels: [Auto]: Skipping tactic",
        "NUMA binding",
    ]
    assert warnings_of("") == []


def test_the_lines_of_one_warning_are_not_as_many_warnings():
    told = warnings_of(CHAT_TEMPLATE.read_text())
    assert not [text for text in told if "File" in text or "Traceback" in text]
    assert "Chat template warmup failed" in " ".join(told)


def test_a_flood_of_warnings_is_cut_and_so_is_a_long_one():
    words = [
        f"WARNING 12-01 13:56:34 [f.py:{n}] {'abcdefghij'[n % 10] * (n + 1)}" for n in range(500)
    ]
    told = warnings_of("\n".join(words))
    assert len(told) == 50
    assert max(map(len, told)) <= 300


def test_a_warning_that_is_cut_is_like_the_same_one_with_longer_numbers():
    (one,), (other,) = (
        warnings_of(f"WARNING 12-01 13:56:34 [f.py:1] pid {pid}: {'x' * 290} and more")
        for pid in (7, 4711)
    )
    assert one != other
    assert like(one) == like(other)


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


def test_a_baseline_without_any_warning_makes_one_the_winners(night):
    again(night, warned(["Chunk may crash."], []))
    (said,) = inspect.show(night).cautions
    assert said.endswith('"Chunk may crash."')


def test_where_the_baseline_told_nothing_a_warning_is_not_the_winners(night):
    def change(record):
        own = ["Chunk may crash."] if record.values.get("chunked-prefill-size") == 8192 else None
        return {"facts": EngineFacts(warnings=own)}

    again(night, change)
    assert inspect.show(night).cautions == []


def test_what_one_launch_of_several_warns_of_is_not_the_configurations(night):
    def change(record):
        return {"facts": EngineFacts(warnings=["Chance."] if record.number == 6 else [])}

    again(night, change)
    assert inspect.show(night).cautions == []


def test_more_warnings_than_three_are_counted(night):
    again(night, warned([f"{letter} may crash." for letter in "abcde"], ["usual"]))
    (said,) = inspect.show(night).cautions
    assert said.endswith('"a may crash." "b may crash." "c may crash." And 2 more.')


def test_the_cores_that_it_was_measured_on_are_said_of_real_launches(night):
    def change(record):
        return {"server_cores": [0, 1, 2, 4], "client_cores": [5], "rehearsal": False}

    again(night, change)
    (said,) = export(load_study(night), list(Records(night))).cautions
    assert said == (
        "Measured with the servers on the host's cores 0-2,4 and the load generator on 5."
    )
    again_rehearsed = [r.model_copy(update={"rehearsal": True}) for r in Records(night)]
    (night / "trials.jsonl").unlink()
    keep(night, *again_rehearsed)
    assert inspect.show(night).cautions == []


def test_cores_that_differ_between_launches_are_not_said(night):
    def change(record):
        return {"server_cores": [0, record.number], "client_cores": [5], "rehearsal": False}

    again(night, change)
    assert inspect.show(night).cautions == []


BOTH = {"chunked-prefill-size": 8192, "attention-backend": "fa3"}


def both_won(study, first):
    """Launches of a pair that wins, each with one of the baseline before it."""
    for number in range(first, first + 6, 2):
        yield launch(study, number, gain=1.0 + number / 1e4)
        yield launch(study, number + 1, "confirm", BOTH, gain=1.6 + number / 1e4)


def test_changes_that_were_measured_alone_are_told_with_what_came_of_them(night):
    study = won(night)
    keep(night, *both_won(study, 11))
    end(night)
    assert inspect.show(night).cautions == [
        "Of its 2 changes, measured alone: attention-backend=fa3: no effect, from one launch; "
        "chunked-prefill-size=8192: helps, from 3 launches."
    ]


def test_changes_that_the_search_alone_or_nobody_measured_alone_are_named(night):
    study = load_study(night)
    keep(
        night,
        *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)),
        launch(study, 3, "search", {"chunked-prefill-size": 8192}, gain=1.3),
        *both_won(study, 4),
    )
    end(night)
    assert inspect.show(night).cautions == [
        "Of its 2 changes, measured alone: chunked-prefill-size=8192: by the search alone, in one "
        "launch; never measured alone: attention-backend=fa3."
    ]
