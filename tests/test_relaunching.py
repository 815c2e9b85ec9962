"""A launch whose measurement is void says nothing: it is made again, within limits, or left."""

import pytest

from tests.samples import OBJECTIVE, record, rung
from tests.test_schedule import BASELINE, FAST, SPACE, calibrated, choose, launch
from tuner.measuring.observed import Doubt
from tuner.night.foresight import to_run
from tuner.night.relaunching import IN_A_ROW, RELAUNCHES, given_up, made, void_in_a_row
from tuner.night.schedule import Job, Stop, Wait, launches_made, ordered
from tuner.search.observation import Ours, observation
from tuner.verdicts.arms import Arms
from tuner.verdicts.decision import finalists
from tuner.verdicts.ledger import ledger

LATE = Doubt.of("lateness", "16", 0.2, 0.01, "streams asked again late", "Give it a core.")
VOID = {"outcome": "invalid", "invalid": [rung(16, 500.0, doubts=[LATE])]}
HYPOTHESIS = ordered(SPACE.hypotheses)[0]
CHANGED = SPACE.hypothesis_configuration(HYPOTHESIS, BASELINE)


def void(number, *given, **more):
    """It measured the first rung, and the second was void twice."""
    whole = launch(number, *given, **more)
    return whole.model_copy(update={**VOID, "rungs": whole.rungs[:1]})


def test_a_void_launch_says_nothing_and_counts_against_the_budget():
    records = [launch(0), void(1)]
    assert [r.tells for r in records] == [True, False]
    assert records[1].void_because == "at 16: streams asked again late"
    assert launches_made(records) == 2
    assert made(records) == 1


@pytest.mark.parametrize(("times", "counted"), [(1, 0), (RELAUNCHES, 0), (RELAUNCHES + 1, 1)])
def test_it_is_made_again_a_few_times(times, counted):
    assert made([void(n) for n in range(times)]) == counted


def test_the_baseline_is_measured_until_there_are_enough():
    job = choose([launch(0), void(1), launch(2)])
    assert isinstance(job, Job)
    assert (job.kind, job.phase) == ("baseline", "calibrate")


def test_a_baseline_that_is_void_again_and_again_ends_the_run():
    records = [launch(0), *(void(1 + n) for n in range(IN_A_ROW))]
    stop = choose(records)
    assert isinstance(stop, Stop)
    assert stop.failed == records[-1]
    assert isinstance(choose(records, pending=[Job(phase="search", kind="search")]), Wait)
    assert not isinstance(choose(records, session_start=2), Stop)
    assert void_in_a_row([*records[:-1], launch(9), records[-1]]) == []


def test_after_void_launches_of_anything_the_baseline_tells_whether_to_go_on():
    """A machine that grew busy must not use the budget up for nothing."""
    records = calibrated(*(void(10 + n, FAST, "search") for n in range(IN_A_ROW)))
    job = choose(records)
    assert isinstance(job, Job)
    assert job.kind == "baseline"
    assert job.reason == "3 launches in a row were void: can the baseline be measured?"
    assert isinstance(choose([*records, void(20)]), Stop)
    after = choose([*records, launch(20)])
    assert isinstance(after, Job)
    assert after.kind == "search"


def test_a_hypothesis_is_launched_again_and_then_given_up():
    tries = [
        void(10 + n, CHANGED, "hypothesis", hypothesis=HYPOTHESIS.id) for n in range(RELAUNCHES + 1)
    ]
    again = choose(calibrated(*tries[:-1], hypotheses_done=False))
    assert isinstance(again, Job)
    assert again.hypothesis == HYPOTHESIS.id
    assert given_up(tries) == {HYPOTHESIS.id}
    other = choose(calibrated(*tries, launch(20), hypotheses_done=False))
    assert isinstance(other, Job)
    assert other.kind == "hypothesis"
    assert other.hypothesis != HYPOTHESIS.id


def test_its_row_says_why_it_was_not_measured():
    tries = [void(10, CHANGED, "hypothesis", hypothesis=HYPOTHESIS.id)]
    (row,) = ledger(calibrated(*tries, hypotheses_done=False), [HYPOTHESIS], OBJECTIVE)
    assert row.verdict == "not run"
    assert row.words.startswith(
        "not measured: the measurement was void at 16: streams asked again late"
    )
    done = launch(11, CHANGED, "hypothesis", hypothesis=HYPOTHESIS.id)
    (row,) = ledger(calibrated(*tries, done, hypotheses_done=False), [HYPOTHESIS], OBJECTIVE)
    assert len(row.trials) == 1


def test_the_search_hears_that_it_is_not_at_fault_and_does_not_repeat_it():
    seen = observation(void(10, FAST, "search"), SPACE, {1: 100.0, 16: 1000.0}, OBJECTIVE)
    assert seen is not None
    assert seen.result == Ours("measurement void at 16: streams asked again late")
    job = choose(calibrated(void(10, FAST, "search")))
    assert isinstance(job, Job)
    assert (job.kind, job.configuration) == ("search", None)


def test_it_has_no_score_and_is_no_finalist_and_no_fresh_launch():
    found = [*calibrated(), void(10, FAST, "search", gain=2.0), void(11, FAST, "confirm", gain=2.0)]
    arms = Arms(found, OBJECTIVE, BASELINE.key)
    assert arms.scores([found[-1]]) == []
    assert arms.fresh(FAST.key) == ()
    assert FAST.key not in finalists(found, OBJECTIVE, BASELINE.key)


def test_a_confirmation_is_made_again():
    fresh = [launch(10, FAST, "search", gain=1.3), void(11, FAST, "confirm", gain=1.3)]
    job = choose(calibrated(*fresh), exhausted=True)
    assert isinstance(job, Job)
    assert (job.kind, job.configuration) == ("confirm", FAST)


def test_a_hypothesis_given_up_is_not_planned():
    class Study:
        space = SPACE
        baseline = BASELINE
        objective = OBJECTIVE

    tries = [
        void(10 + n, CHANGED, "hypothesis", hypothesis=HYPOTHESIS.id) for n in range(RELAUNCHES + 1)
    ]
    planned = to_run(Study(), tries)  # type: ignore[arg-type]
    assert HYPOTHESIS.id not in {h.id for h in planned}
    assert HYPOTHESIS.id in {h.id for h in to_run(Study(), tries[:1])}  # type: ignore[arg-type]


def test_records_from_before_void_attempts_were_kept_have_none():
    assert record(0).invalid == []
    assert record(0).void_because == ""
