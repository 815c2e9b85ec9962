"""Which launches belong together."""

import math

import pytest

from tests.samples import OBJECTIVE, record
from tuner.failures.classifier import Failure
from tuner.verdicts.arms import Arms, compare, counts_against

FAULT = Failure(kind="oom_kv", cause="c", action="never", advice="a", phase="loading")


def launch(number, kind="baseline", key="base", gain=1.0, **changes):
    rates = {1: 100.0 * gain, 16: 1000.0 * gain}
    return record(number, kind, key=key, rates=rates, **changes)


def arms(*records):
    return Arms(records, OBJECTIVE)


def test_the_baseline_is_known_by_its_launches():
    made = arms(launch(0), launch(1), launch(2, "search", "other"))
    assert made.baseline_key == "base"
    assert [r.number for r in made.baseline] == [0, 1]
    assert made.reference == pytest.approx({1: 100.0, 16: 1000.0})


def test_a_search_launch_that_equals_the_baseline_is_no_launch_of_it():
    made = arms(launch(0), launch(1, "search", "base"))
    assert [r.number for r in made.baseline] == [0]
    assert made.candidates() == {}


def test_a_twin_is_told_by_the_launch_that_it_repeats():
    twin = launch(2, "search", "other", outcome="duplicate", duplicate_of=0)
    made = arms(launch(0), launch(1, "search", "third"), twin)
    assert made.original(twin).number == 0
    assert made.original(made.records[1]).number == 1


def test_fresh_launches_are_those_made_to_confirm_and_not_cut_short():
    made = arms(
        launch(0),
        launch(1, "search", "good"),
        launch(2, "confirm", "good"),
        launch(3, "confirm", "good", outcome="interrupted"),
    )
    assert [r.number for r in made.fresh("good")] == [2]
    assert made.confirmed_keys() == ("good",)


def test_a_launch_that_missed_a_rung_has_no_score_but_keeps_its_rungs():
    whole, half = launch(0), record(1, "search", key="other", rates={1: 50.0})
    made = arms(whole, half)
    assert [s.position for s in made.scores([whole, half])] == [0]
    assert [s.value for s in made.rung([half], 1)] == [pytest.approx(math.log(50))]


def test_purposes_are_kept_apart_when_noise_is_pooled():
    made = arms(
        launch(0), launch(1), launch(2, "search", "good"), launch(3, "confirm", "good"),
        launch(4, "confirm", "good"),
    )  # fmt: skip
    assert [[r.number for r in group] for group in made.repeated()] == [[0, 1], [3, 4]]


def test_groups_are_compared_by_score_or_at_a_rung():
    made = arms(launch(0), launch(1, gain=1.001), launch(2, "search", "good", 1.1))
    found = compare(made, [made.records[2]], made.baseline)
    assert found is not None
    assert found.gain_percent == pytest.approx(9.95, abs=0.1)
    at_one = compare(made, [made.records[2]], made.baseline, rung=1)
    assert at_one is not None
    assert compare(made, [], made.baseline) is None


@pytest.mark.parametrize(
    ("outcome", "failure", "counts"),
    [
        ("completed", None, False),
        ("failed", FAULT, True),
        ("failed", FAULT.model_copy(update={"action": "once", "phase": "loading"}), False),
        ("interrupted", None, False),
    ],
)
def test_only_its_own_fault_counts_against_a_configuration(outcome, failure, counts):
    made = launch(0, outcome=outcome, failure=failure)
    assert counts_against(made.model_copy(update={"rungs": []})) is counts
