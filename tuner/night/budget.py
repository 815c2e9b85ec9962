"""How much of a night is left: launches, hours of running, a time of day."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tuner.definitions.validation import LoadedStudy
from tuner.night.launches import expected_launch_s
from tuner.night.schedule import launches_made
from tuner.records import TrialRecord


@dataclass(slots=True)
class BudgetClock:
    """How much of the budget is left, in launches and in seconds.

    Hours count all runs of a study together; a deadline is the next time the clock shows it.
    """

    trials: int | None
    hours: float | None
    deadline: datetime | None
    spent_before_s: float
    begun: float
    launch_s: float

    @classmethod
    def of(cls, study: LoadedStudy, records: Sequence[TrialRecord], now: datetime) -> "BudgetClock":
        """The clock of a run that begins now."""
        budget = study.definition.budget
        return cls(
            trials=budget.trials,
            hours=budget.hours,
            deadline=_next(budget.deadline, now) if budget.deadline else None,
            spent_before_s=running_s(records),
            begun=time.monotonic(),
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
        return None if self.deadline is None else (self.deadline - datetime.now()).total_seconds()

    def launches_left(self, records: Sequence[TrialRecord], pending: int) -> int | None:
        """Launches that may still be started."""
        limits = []
        if self.trials is not None:
            limits.append(self.trials - launches_made(records) - pending)
        seconds = self.seconds_left()
        if seconds is not None:
            limits.append(int(seconds / self.launch_s) - pending)
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


def _next(deadline: str, now: datetime) -> datetime:
    hour, minute = (int(part) for part in deadline.split(":"))
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)


def running_s(records: Sequence[TrialRecord]) -> float:
    """Seconds in which at least one launch was under way: several hosts count once."""
    spans = sorted(
        (begun.timestamp(), begun.timestamp() + record.duration_s)
        for record in records
        if (begun := datetime.fromisoformat(record.started_at))
    )
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
