"""What to launch next, rule by rule. `test_study` plays whole nights."""

import pytest

from tests.nightly import space
from tests.samples import OBJECTIVE, record
from tuner.definitions.models import Hypothesis
from tuner.failures.classifier import Failure
from tuner.night.schedule import (
    Job,
    Situation,
    Stop,
    Wait,
    confirm_launches,
    finalist_count,
    moot,
    next_job,
    ordered,
    reserve,
)

SPACE = space()
BASELINE = SPACE.configuration({})
FAST = SPACE.configuration({"chunk": 2})
SLOW = SPACE.configuration({"seats": 16})
FAULT = Failure(kind="oom_kv", cause="c", action="never", advice="a", phase="loading")


def launch(number, configuration=BASELINE, kind="baseline", gain=1.0, **changes):
    return record(
        number,
        kind,
        key=configuration.key,
        values=configuration.as_dict(),
        rates={1: 100.0 * gain, 16: 1000.0 * gain},
        **changes,
    )


def calibrated(*more, hypotheses_done=True):
    """Three launches of the baseline, every hypothesis tried in vain, and more."""
    records = [launch(n, gain=1 + n / 1000) for n in range(3)]
    if hypotheses_done:
        records += [
            launch(3 + n, SPACE.hypothesis_configuration(h, BASELINE), "hypothesis", 0.5,
                   hypothesis=h.id)
            for n, h in enumerate(SPACE.hypotheses)
        ]  # fmt: skip
    return [*records, *(r.model_copy(update={"number": 10 + n}) for n, r in enumerate(more))]


def choose(records=(), *, left=30, pending=(), exhausted=False, session_start=0, space=SPACE):
    return next_job(
        Situation(
            space=space,
            objective=OBJECTIVE,
            baseline=BASELINE,
            records=list(records),
            pending=list(pending),
            launches_left=left,
            exhausted=exhausted,
            session_start=session_start,
        )
    )


def hypothesis(identity, **changes):
    fields = {"id": identity, "change": {"graphs": True}, "claim": "c", "gain_percent": (1.0, 3.0)}
    return Hypothesis(**{**fields, **changes})


def test_hypotheses_go_by_tier_then_gain_over_effort_and_parents_first():
    listed = [
        hypothesis("late", tier=2, gain_percent=(50.0, 60.0)),
        hypothesis("dear", effort="days", gain_percent=(50.0, 60.0)),
        hypothesis("cheap", gain_percent=(10.0, 20.0)),
        hypothesis("child", gain_percent=(90.0, 99.0), depends_on=["cheap"]),
    ]
    assert [h.id for h in ordered(listed)] == ["cheap", "child", "dear", "late"]


def test_a_child_is_moot_where_its_parent_or_grandparent_never_served():
    child = SPACE.hypotheses[2]
    blocked = launch(3, FAST, "hypothesis", hypothesis="graphs", outcome="failed", failure=FAULT)
    assert moot(child, SPACE, []) is None
    assert moot(child, SPACE, [blocked]) is None  # it measured rungs before it failed
    assert moot(child, SPACE, [blocked.model_copy(update={"rungs": []})]) == "graphs"


@pytest.mark.parametrize("good", [0, 1, 2])
def test_the_baseline_comes_first_until_its_noise_is_known(good):
    choice = choose(calibrated(hypotheses_done=False)[:good])
    assert isinstance(choice, Job)
    assert (choice.phase, choice.kind) == ("calibrate", "baseline")


def test_nothing_else_starts_while_the_noise_is_not_known():
    pending = [Job(phase="calibrate", kind="baseline", configuration=BASELINE)] * 2
    assert isinstance(choose(calibrated(hypotheses_done=False)[:1], pending=pending), Wait)


def test_a_sentinel_of_the_baseline_runs_after_eight_other_launches():
    others = [launch(0, SLOW, "search", 0.9)] * 4
    assert choose(calibrated(*others)).kind == "search"
    assert choose(calibrated(*others, others[0])).kind == "baseline"


def test_the_search_leaves_what_the_confirmation_needs():
    records = calibrated(launch(0, FAST, "search", 1.2))
    kept = reserve(5 + len(records))
    assert kept == 5
    assert choose(records, left=kept + 1).kind == "search"
    confirm = choose(records, left=kept)
    assert (confirm.kind, confirm.configuration) == ("confirm", FAST)


def test_finalist_and_baseline_are_launched_in_turn():
    records = calibrated(launch(0, FAST, "search", 1.2), launch(0, FAST, "confirm", 1.2))
    assert choose(records, left=5).kind == "baseline"
    records = calibrated(launch(0, FAST, "search", 1.2), launch(0, FAST, "confirm", 1.2), launch(0))
    assert choose(records, left=4).kind == "confirm"


def test_a_finalist_that_cannot_be_launched_often_enough_is_not_begun():
    records = calibrated(launch(0, FAST, "search", 1.2))
    assert choose(records, left=3, exhausted=True).kind == "confirm"
    late = choose(records, left=2, exhausted=True)
    assert not isinstance(late, Job) or late.kind != "confirm"


def test_each_finalist_has_baselines_of_its_own_beside_it():
    first = [launch(0, FAST, "confirm", 1.2), launch(0), launch(0, FAST, "confirm", 1.2), launch(0)]
    late = [launch(0, SLOW, "confirm", 1.3)]
    found = [launch(0, SLOW, "search", 1.3), launch(0, FAST, "search", 1.2)]
    records = calibrated(*found, *first, *late)
    assert choose(records, left=9, exhausted=True).kind == "baseline"


def test_without_a_candidate_there_is_nothing_to_confirm():
    records = calibrated(launch(0, SLOW, "search", 0.9))
    assert isinstance(choose(records, exhausted=True), Stop)


def test_a_host_failure_is_repeated_once_in_the_same_role():
    port = FAULT.model_copy(update={"kind": "port_conflict", "action": "once"})
    failed = launch(0, FAST, "search", outcome="failed", failure=port)
    again = choose(calibrated(failed))
    assert (again.kind, again.configuration) == ("search", FAST)
    assert choose(calibrated(failed, failed)).configuration is None


def test_the_baseline_that_fails_by_its_own_fault_ends_the_study_in_this_run_only():
    failed = launch(0, outcome="failed", failure=FAULT)
    stop = choose([failed])
    assert isinstance(stop, Stop)
    assert stop.failed == failed
    assert isinstance(choose([failed], session_start=1), Job)


def test_a_baseline_that_failed_by_the_hosts_fault_has_a_second_try():
    once = FAULT.model_copy(update={"action": "once"})
    failed = launch(0, outcome="failed", failure=once)
    assert isinstance(choose([failed]), Job)
    assert isinstance(choose([failed, failed]), Stop)


def test_a_failure_that_blames_the_host_sends_the_baseline_as_canary():
    host = FAULT.model_copy(update={"action": "stop-study"})
    bad = launch(0, FAST, "search", outcome="failed", failure=host)
    assert choose(calibrated(bad)).kind == "baseline"
    assert choose(calibrated(bad, launch(0))).kind == "search"


@pytest.mark.parametrize(
    ("total", "finalists", "launches", "kept"),
    [(8, 1, 2, 3), (16, 1, 3, 5), (24, 2, 3, 8), (None, 2, 3, 8)],
)
def test_a_narrow_budget_confirms_less(total, finalists, launches, kept):
    assert finalist_count(total) == finalists
    assert confirm_launches(total) == launches
    assert reserve(total) == kept


def test_an_empty_budget_waits_for_what_is_in_flight_and_then_stops():
    pending = [Job(phase="search", kind="search", configuration=FAST)]
    assert isinstance(choose(calibrated(), left=0, pending=pending), Wait)
    assert choose(calibrated(), left=0) == Stop("the budget is used up")


def test_a_hypothesis_of_dead_flags_alone_is_never_launched():
    def launched(space):
        records = calibrated(hypotheses_done=False)
        found: list[str | None] = []
        while True:
            job = choose(records, space=space)
            if not isinstance(job, Job) or job.kind != "hypothesis":
                return found
            found.append(job.hypothesis)
            assert job.configuration is not None
            records.append(
                launch(len(records), job.configuration, "hypothesis", hypothesis=job.hypothesis)
            )

    stated = [h.id for h in SPACE.hypotheses]
    idle = [h.id for h in SPACE.hypotheses if h.change.keys() == {"graphs"}]
    assert idle
    assert sorted(launched(SPACE)) == sorted(stated)
    known = SPACE.ignoring({"graphs"}, BASELINE)
    assert sorted(launched(known)) == sorted(set(stated) - set(idle))
