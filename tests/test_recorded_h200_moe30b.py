"""A second night on a real GPU, kept: one H200, SGLang 0.5.17, the shapes of a 30 B mixture of
experts with random weights. Its records are as they came, but for paths and names of machines; of
the arguments read back some are left out.

The night was killed with SIGKILL in its fifth launch and told to end in its tenth. Before it the
engine's own parser and source were asked: one of the four hypotheses is about a flag that nothing
reads, and was not launched.
"""

import shutil
from pathlib import Path

import pytest

from tuner.records import Records
from tuner.verbs import inspect

RECORDED = Path(__file__).parent / "data" / "h200_moe30b"


@pytest.fixture
def night(tmp_path):
    return shutil.copytree(RECORDED, tmp_path / "night")


@pytest.fixture
def records(night):
    return list(Records(night))


@pytest.fixture
def view(night):
    return inspect.show(night)


@pytest.fixture
def ledger(view):
    return {row.id: row for row in view.hypotheses}


def test_a_flag_that_nothing_reads_is_answered_without_a_launch(ledger, records):
    row = ledger["decode-steps"]
    assert (row.verdict, row.trials) == ("no effect", ())
    assert "declared, read by nothing in sglang 0.5.17" in row.words
    assert {record.values["num-continuous-decode-steps"] for record in records} == {1}


def test_the_night_went_on_after_it_was_killed(records):
    assert [record.number for record in records] == list(range(10))
    assert [r.number for r in records if r.outcome != "completed"] == [3, 9]
    assert records[-1].outcome == "interrupted"


def test_launches_of_one_configuration_run_with_the_same_arguments(records):
    by_key: dict[str, set[str]] = {}
    for record in records:
        if record.effective_key:
            by_key.setdefault(record.key, set()).add(record.effective_key)
    assert len(by_key) == 4
    assert all(len(keys) == 1 for keys in by_key.values())
    assert len({key for keys in by_key.values() for key in keys}) == 4


def test_more_expert_ranks_than_gpus_are_blocked_with_their_cause(ledger, view):
    assert ledger["expert-parallel"].verdict == "blocked"
    (dead,) = view.never_again
    assert (dead.suspects, dead.trials) == ({"ep-size": 2}, [3])


def test_a_model_without_graphs_is_four_times_slower(ledger):
    row = ledger["graphs-off"]
    assert row.verdict == "regresses"
    assert row.effect is not None
    assert -77 < row.effect.gain_percent < -73


def test_what_is_inert_on_one_gpu_is_never_said_to_help(ledger):
    assert ledger["mscclpp"].verdict in ("no effect", "inconclusive")


def test_one_fresh_launch_crowns_nobody(view):
    assert view.conclusion.winner_key is None
    assert view.conclusion.sentence.startswith(
        "Not finished: 9 of 12 launches. So far no configuration beats the baseline beyond noise."
    )
    assert "1 of the 2 fresh launches that a winner needs" in view.conclusion.sentence


def test_a_model_that_keeps_its_gpu_busy_has_little_noise(view):
    noise = view.conclusion.noise.score
    assert noise is not None
    assert noise.sd_percent < 3
