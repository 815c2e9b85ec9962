"""What the search hears of a night, and when."""

from tests.nights import failure, record
from tuner.night.lessons import all_lessons, lessons

HOST = failure("no nvcc", kind="jit_build", action="stop-study")
FAULT = failure("died of it")
SERVED = [record(0, "baseline", "base"), record(1, "search", "a", failure=HOST)]


def heard(records):
    return [(r.number, r.failure.action if r.failure else "") for r in records]


def test_a_launch_tells_of_itself():
    assert lessons([]) == []
    assert heard(lessons(SERVED)) == [(1, "stop-study")]


def test_a_baseline_that_serves_tells_whose_fault_it_was():
    canary = record(2, "baseline", "base")
    assert heard(lessons([*SERVED, canary])) == [(2, ""), (1, "never")]
    assert heard(lessons([*SERVED, canary, record(3, "baseline", "base")])) == [(3, "")]
    assert heard(all_lessons([*SERVED, canary])) == [
        (0, ""),
        (1, "stop-study"),
        (2, ""),
        (1, "never"),
    ]


def test_what_the_host_is_to_blame_for_is_not_heard_again():
    dead = record(3, "baseline", "base", failure=FAULT)
    night = [*SERVED, record(2, "search", "b", failure=FAULT), dead]
    assert heard(lessons(night)) == [(3, "never")]
    assert heard(all_lessons(night)) == [(0, ""), (3, "never")]
