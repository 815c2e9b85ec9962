"""How much of a night is left: launches, hours of running, a time of day.

Hours are counted by a clock that nobody can set. A deadline is a time of day, so the machine's own
clock has a say: the run ends by whichever of the two comes first. A machine clock that was moved by
more than a day was wrong when the run began, and has none.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tuner.definitions.validation import LoadedStudy
from tuner.night.launches import expected_launch_s
from tuner.night.schedule import launches_made
from tuner.records import TrialRecord

_WRONG_CLOCK_S = 24 * 3600.0


@dataclass(slots=True)
class BudgetClock:
    """How much of the budget is left, in launches and in seconds.

    Hours count all runs of a study together; a deadline is the next time the clock shows it. So
    many `hosts` launch at the same time.
    """

    trials: int | None
    hours: float | None
    deadline: datetime | None
    spent_before_s: float
    begun: float
    begun_since_boot_s: float
    until_deadline_s: float
    launch_s: float
    hosts: int = 1

    @classmethod
    def of(cls, study: LoadedStudy, records: Sequence[TrialRecord], now: datetime) -> "BudgetClock":
        """The clock of a run that begins now, on one host until more are known."""
        budget = study.definition.budget
        deadline = deadline_after(budget.deadline, now) if budget.deadline else None
        return cls(
            trials=budget.trials,
            hours=budget.hours,
            deadline=deadline,
            spent_before_s=running_s(records),
            begun=time.monotonic(),
            begun_since_boot_s=_since_boot_s(),
            until_deadline_s=(deadline - now).total_seconds() if deadline else 0.0,
            launch_s=expected_launch_s(study, records),
        )

    def seconds_left(self) -> float | None:
        """Seconds until hours or deadline end the run; None without either."""
        limits = [limit for limit in (self._hours_s(), self._deadline_s()) if limit is not None]
        return min(limits, default=None)

    def _hours_s(self) -> float | None:
        if self.hours is None:
            return None
        return self.hours * 3600 - self.spent_before_s - (time.monotonic() - self.begun)

    def _deadline_s(self) -> float | None:
        if self.deadline is None:
            return None
        counted_s = self.until_deadline_s - (_since_boot_s() - self.begun_since_boot_s)
        shown_s = (self.deadline - datetime.now()).total_seconds()
        wrong = abs(counted_s - shown_s) > _WRONG_CLOCK_S
        return counted_s if wrong else min(counted_s, shown_s)

    def launches_left(self, records: Sequence[TrialRecord], pending: int) -> int | None:
        """Launches that may still be started."""
        limits = []
        if self.trials is not None:
            limits.append(self.trials - launches_made(records) - pending)
        seconds = self.seconds_left()
        if seconds is not None:
            limits.append(self.hosts * int(seconds / self.launch_s) - pending)
        return max(0, min(limits)) if limits else None

    def limit(self, records: Sequence[TrialRecord], pending: int) -> str:
        """Which limit leaves no further launch, in words; empty where one may still be started."""
        if self.launches_left(records, pending) != 0:
            return ""
        if self.trials is not None and launches_made(records) + pending >= self.trials:
            return f"its {self.trials} launches are made"
        hours_s, deadline_s = self._hours_s(), self._deadline_s()
        if self.deadline and deadline_s is not None and (hours_s is None or deadline_s < hours_s):
            return f"no launch would end before its deadline, {self.deadline:%H:%M}"
        return f"no launch would end within its {self.hours:g} h"


def deadline_after(deadline: str, now: datetime) -> datetime:
    """When the clock shows it next."""
    hour, minute = (int(part) for part in deadline.split(":"))
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)


def _since_boot_s() -> float:
    """Seconds, those in which the machine slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def running_s(records: Sequence[TrialRecord]) -> float:
    """Seconds in which at least one launch was under way: several hosts count once.

    No less than the busiest GPU was used for, whatever the machine's clock said meanwhile: launches
    that seem to overlap there are those of a clock that was put back.
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(span(record) for record in records):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    used: defaultdict[tuple[str, str], float] = defaultdict(float)
    for record in records:
        for gpu in record.gpus:
            used[record.host, gpu] += record.duration_s
    return max(total, *used.values(), 0.0)


def span(record: TrialRecord) -> tuple[float, float]:
    """When a launch began and ended, in seconds since the epoch."""
    start = datetime.fromisoformat(record.started_at).timestamp()
    return start, start + record.duration_s
