"""How much of a night is left."""

from datetime import datetime, timedelta

import pytest

from tests.nightly import HOST, Heard, SimulatedExecutor, completed, study
from tests.samples import record
from tuner.night import budget
from tuner.night.budget import BudgetClock, running_s
from tuner.night.study import StudyRun
from tuner.records import Records
from tuner.search.searcher import Searcher


def at(number, clock, duration_s=100.0, **changes):
    return record(number, started_at=f"2026-01-01T{clock}+00:00", duration_s=duration_s, **changes)


def clock_of(tmp_path, budget, records=(), now=None):
    loaded = study(tmp_path, budget)
    return BudgetClock.of(loaded, list(records), now or datetime.now())


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([("00:00:00", 100)], 100),
        ([("00:00:00", 100), ("00:10:00", 50)], 150),
        ([("00:00:00", 100), ("00:00:30", 100)], 130),
        ([("00:00:30", 10), ("00:00:00", 100)], 100),
    ],
)
def test_launches_side_by_side_count_once(spans, seconds):
    assert running_s([at(n, *span) for n, span in enumerate(spans)]) == seconds


def test_trials_are_launches_that_nobody_cut_short(tmp_path):
    records = [at(0, "00:00:00"), at(1, "00:05:00", outcome="interrupted")]
    assert clock_of(tmp_path, {"trials": 5}, records).launches_left(records, pending=1) == 3


def test_hours_are_divided_by_what_a_launch_takes(tmp_path):
    records = [at(0, "00:00:00", 900.0), at(1, "01:00:00", 900.0)]
    clock = clock_of(tmp_path, {"hours": 1.0}, records)
    assert clock.launches_left(records, pending=0) == 1
    assert clock.launches_left(records, pending=1) == 0


def test_hours_are_those_of_every_host(tmp_path):
    records = [at(0, "00:00:00", 900.0), at(1, "01:00:00", 900.0)]
    clock = clock_of(tmp_path, {"hours": 1.0, "trials": 9}, records)
    clock.hosts = 3
    assert clock.launches_left(records, pending=0) == 3
    assert clock.launches_left(records, pending=2) == 1
    assert clock.limit(records, pending=2) == ""
    assert clock.limit(records, pending=3) == "no launch would end within its 1 h"


def test_a_run_counts_the_hosts_that_are_there(tmp_path):
    class Two(SimulatedExecutor):
        hosts = (HOST, HOST)

    loaded, executor = study(tmp_path, {"trials": 2}), Two(lambda order: completed(order, 1.0))
    searcher = Searcher(loaded.space, sampler="TPESampler", seed=1, journal=None, name="two")
    night = StudyRun(loaded, Records(tmp_path), executor, searcher, Heard())
    assert night.clock.hosts == 1
    night.run()
    assert night.clock.hosts == 2


def test_a_deadline_is_the_next_time_that_the_clock_shows_it(tmp_path):
    evening = datetime(2026, 1, 1, 22, 0)
    clock = clock_of(tmp_path, {"deadline": "07:30"}, now=evening)
    assert clock.deadline == datetime(2026, 1, 2, 7, 30)
    clock = clock_of(tmp_path, {"deadline": "22:30"}, now=evening)
    assert clock.deadline == evening + timedelta(minutes=30)


def test_the_tightest_limit_counts(tmp_path):
    records = [at(0, "00:00:00", 360.0)]
    clock = clock_of(tmp_path, {"trials": 50, "hours": 1.0}, records)
    assert clock.launches_left(records, pending=0) == 8
    clock = clock_of(tmp_path, {"trials": 3, "hours": 1.0}, records)
    assert clock.launches_left(records, pending=0) == 2


def test_the_limit_that_ends_a_night_is_named(tmp_path):
    records = [at(0, "00:00:00", 900.0), at(1, "01:00:00", 900.0)]

    def limit(budget, pending=0):
        return clock_of(tmp_path, budget, records).limit(records, pending)

    soon = (datetime.now() + timedelta(minutes=5)).strftime("%H:%M")
    later = (datetime.now() + timedelta(hours=12)).strftime("%H:%M")
    assert limit({"trials": 2}) == "its 2 launches are made"
    assert limit({"trials": 3}, pending=1) == "its 3 launches are made"
    assert limit({"trials": 3}) == ""
    assert limit({"hours": 0.6}) == "no launch would end within its 0.6 h"
    assert limit({"deadline": soon}) == f"no launch would end before its deadline, {soon}"
    assert (
        limit({"hours": 9, "deadline": soon}) == f"no launch would end before its deadline, {soon}"
    )
    assert limit({"hours": 0.6, "deadline": later}) == "no launch would end within its 0.6 h"
    assert limit({"trials": 2, "deadline": soon}) == "its 2 launches are made"
    assert limit({"hours": 9, "deadline": later}) == ""


def test_launches_that_overlap_on_one_gpu_are_those_of_a_clock_that_was_put_back():
    one = {"host": "h", "gpus": ["0"]}
    records = [at(0, "05:00:00", **one), at(1, "04:59:10", **one), at(2, "04:58:20", **one)]
    assert running_s(records) == 300
    beside = [at(0, "05:00:00", **one), at(1, "05:00:10", host="h", gpus=["1"])]
    assert running_s(beside) == 110


class Clock:
    """A machine's clock that can be set, and the time since it was started."""

    def __init__(self, monkeypatch, shows):
        self.shows, self.passed_s = shows, 1000.0
        monkeypatch.setattr(budget, "_since_boot_s", lambda: self.passed_s)
        monkeypatch.setattr(budget, "datetime", self)

    def now(self):
        return self.shows

    def wait(self, **passed):
        self.shows += timedelta(**passed)
        self.passed_s += timedelta(**passed).total_seconds()


@pytest.mark.parametrize(
    ("moved", "left"),
    [
        ({}, {"hours": 8.5}),
        ({"hours": 2}, {"hours": 6.5}),  # put right: the servers are wanted at that time
        ({"hours": 9}, {"hours": -0.5}),  # it is past the deadline
        ({"hours": -3}, {"hours": 8.5}),  # no later than what was counted on
        ({"days": 20000}, {"hours": 8.5}),  # it began in 1970
        ({"days": -20000}, {"hours": 8.5}),
    ],
)
def test_a_deadline_survives_a_clock_that_is_set(tmp_path, monkeypatch, moved, left):
    clock = Clock(monkeypatch, datetime(2026, 1, 1, 22, 0))
    made = clock_of(tmp_path, {"deadline": "07:30"}, now=clock.now())
    clock.wait(hours=1)
    clock.shows += timedelta(**moved)
    assert made.seconds_left() == timedelta(**left).total_seconds()


def test_a_deadline_comes_while_the_machine_sleeps(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, datetime(2026, 1, 1, 22, 0))
    made = clock_of(tmp_path, {"deadline": "07:30"}, now=clock.now())
    clock.wait(days=3)
    assert made.seconds_left() < 0


def test_hours_do_not_ask_the_machines_clock(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, datetime(2026, 1, 1, 22, 0))
    made = clock_of(tmp_path, {"hours": 8.0}, now=clock.now())
    clock.shows += timedelta(days=400)
    assert 7.9 * 3600 < made.seconds_left() <= 8 * 3600
