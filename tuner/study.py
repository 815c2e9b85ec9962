"""The loop of a night: choose, launch, record, tell; any interruption continues from the records.

Knows neither Ray nor a terminal: work is done by an Executor, what happens is said to a Listener.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from tuner import engines
from tuner.decision import noise_by_rung, reference
from tuner.definitions import Value
from tuner.errors import HostError, StudyError
from tuner.executor import Executor, JobDone, JobLost, JobNote
from tuner.launches import expected_launch_s, launch_spec
from tuner.quality import OutputQuality
from tuner.records import Records, TrialRecord
from tuner.schedule import Job, Situation, Stop, Wait, launches_made, next_job
from tuner.score import best_ratios, score, slo_breaches
from tuner.search import Observation, Searcher, observation
from tuner.space import Configuration
from tuner.trial import TrialNote, TrialOrder, run_trial
from tuner.validation import LoadedStudy

POLL_S = 0.5


class Listener(Protocol):
    """Is told what happens, as it happens."""

    def preparing(self, what: str) -> None:
        """Something takes a while before the first launch."""

    def started(self, job: Job, order: TrialOrder) -> None:
        """A launch begins."""

    def note(self, note: TrialNote) -> None:
        """A launch says where it is."""

    def ended(self, record: TrialRecord, records: Sequence[TrialRecord]) -> None:
        """A launch is over and recorded."""

    def tick(self, clock: "BudgetClock") -> None:
        """Time has passed."""


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
        spent = sum(record.duration_s for record in records)
        return cls(
            trials=budget.trials,
            hours=budget.hours,
            deadline=_next(budget.deadline, now) if budget.deadline else None,
            spent_before_s=spent,
            begun=time.monotonic(),
            launch_s=expected_launch_s(study, records),
        )

    def seconds_left(self) -> float | None:
        """Seconds until hours or deadline end the run; None without either."""
        limits = []
        if self.hours is not None:
            running = time.monotonic() - self.begun
            limits.append(self.hours * 3600 - self.spent_before_s - running)
        if self.deadline is not None:
            limits.append((self.deadline - datetime.now()).total_seconds())
        return min(limits, default=None)

    def launches_left(self, records: Sequence[TrialRecord], pending: int) -> int | None:
        """Launches that may still be started."""
        limits = []
        if self.trials is not None:
            limits.append(self.trials - launches_made(records) - pending)
        seconds = self.seconds_left()
        if seconds is not None:
            limits.append(int(seconds / self.launch_s) - pending)
        return max(0, min(limits)) if limits else None


def _next(deadline: str, now: datetime) -> datetime:
    hour, minute = (int(part) for part in deadline.split(":"))
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return at if at > now else at + timedelta(days=1)


class StudyRun:
    """One run of a study: from where its records stand until its budget or its questions end."""

    def __init__(
        self,
        study: LoadedStudy,
        records: Records,
        executor: Executor,
        searcher: Searcher,
        listener: Listener,
    ) -> None:
        self.study = study
        self.records = records
        self.clock = BudgetClock.of(study, list(records), datetime.now())
        self._executor = executor
        self._searcher = searcher
        self._listener = listener
        self._pending: dict[int, tuple[Job, TrialOrder, str, float]] = {}
        self._session_start = len(records)
        self._exhausted = False
        self._next_number = records.next_number
        self._searcher.replay(
            [seen for record in records if (seen := self._observation(record)) is not None]
        )

    def run(self) -> Stop:
        """Until the budget is used up or nothing is left to learn.

        Raises HostError where the host gives up, StudyError where the records cannot be written.
        """
        try:
            while True:
                choice = self._start_what_can_start()
                if isinstance(choice, Stop):
                    return choice
                self._listener.tick(self.clock)
                self._handle_events()
        finally:
            self._interrupt_pending()

    def _start_what_can_start(self) -> Stop | Wait:
        while True:
            if len(self._pending) >= len(self._executor.hosts):
                return Wait()
            choice = next_job(self._situation())
            if not isinstance(choice, Job):
                return choice
            configuration = choice.configuration or self._searcher.ask()
            if configuration is None:
                self._exhausted = True
            elif not self._start(choice, configuration):
                return Wait()

    def _situation(self) -> Situation:
        records = list(self.records)
        return Situation(
            space=self.study.space,
            objective=self.study.objective,
            baseline=self.study.baseline,
            records=records,
            pending=[job for job, *_ in self._pending.values()],
            launches_left=self.clock.launches_left(records, len(self._pending)),
            exhausted=self._exhausted,
            session_start=self._session_start,
        )

    def _start(self, job: Job, configuration: Configuration) -> bool:
        order = self._order(job, configuration)
        folder = self.study.folder / "trials" / f"{order.number:04d}"
        _clear(folder)
        number = self._executor.submit(run_trial, order, gpus=order.gpus, folder=folder)
        if number is None:
            return False
        self._next_number += 1
        self._pending[number] = (job, order, _now(), time.monotonic())
        self._listener.started(job, order)
        return True

    def _order(self, job: Job, configuration: Configuration) -> TrialOrder:
        launch = launch_spec(self.study, configuration)
        records = list(self.records)
        objective = self.study.objective
        base = reference(records, objective, self.study.baseline.key)
        known = {}
        if job.phase in ("hypotheses", "search") and job.kind != "baseline":
            known = {r.effective_key: r.number for r in records if r.effective_key and r.rungs}
        return TrialOrder(
            number=self._next_number,
            kind=job.kind,
            hypothesis=job.hypothesis,
            key=configuration.key,
            values=configuration.as_dict(),
            launch=launch,
            gpus=engines.create(launch).gpus_needed(),
            objective=objective,
            prune=job.kind == "search",
            reference=base,
            noise=noise_by_rung(records, objective),
            best=self._best_score(records),
            ceilings=best_ratios((r.rungs for r in records), base, objective),
            known=known,
            baseline_quality=self._baseline_quality(records),
            nearest=self._nearest(configuration, records),
        )

    def _baseline_quality(self, records: Sequence[TrialRecord]) -> OutputQuality:
        key = self.study.baseline.key
        return sum((r.quality for r in records if r.key == key), OutputQuality())

    def _nearest(
        self, configuration: Configuration, records: Sequence[TrialRecord]
    ) -> dict[str, Value]:
        """Flags and variables of the configuration that served and has most values alike."""
        values = configuration.as_dict()

        def alike(record: TrialRecord) -> int:
            return sum(record.values.get(name) == value for name, value in values.items())

        served = [r for r in records if r.outcome == "completed" and r.key != configuration.key]
        nearest = self.study.baseline
        if served:
            nearest = self.study.space.configuration(max(served, key=alike).values)
        launch = launch_spec(self.study, nearest)
        return {**launch.flags, **launch.env}

    def _best_score(self, records: Sequence[TrialRecord]) -> float:
        """Of the launches that served the whole ladder within all limits; the baseline is 1."""
        objective = self.study.objective
        base = reference(records, objective, self.study.baseline.key)
        served = [r.rungs for r in records if r.outcome == "completed"]
        scores = [
            score(rungs, base, objective) for rungs in served if not slo_breaches(rungs, objective)
        ]
        return max([1.0, *(value for value in scores if value is not None)])

    def _handle_events(self) -> None:
        for event in self._executor.poll(POLL_S):
            if isinstance(event, JobNote):
                self._listener.note(event.note)
                continue
            if event.job not in self._pending:
                continue
            if isinstance(event, JobLost):
                self._lost(event)
            else:
                self._done(event)

    def _done(self, event: JobDone) -> None:
        self._pending.pop(event.job)
        self._keep(event.result)

    def _lost(self, event: JobLost) -> None:
        job, order, started_at, begun = self._pending.pop(event.job)
        self._keep(_interrupted(order, started_at, time.monotonic() - begun))
        if event.bug:
            raise RuntimeError(f"trial {order.number}: {event.reason}\n{event.bug}")
        raise HostError(
            f"trial {order.number} ({job.kind}) was lost: {event.reason}",
            hint="Everything before it is recorded. Run again: the study continues there.",
        )

    def _keep(self, record: TrialRecord) -> None:
        """The record first, then everything that can be rebuilt from it."""
        self.records.append(record)
        self.clock.launch_s = expected_launch_s(self.study, list(self.records))
        seen = self._observation(record)
        if seen is not None:
            self._searcher.tell(seen)
        self._listener.ended(record, list(self.records))

    def _observation(self, record: TrialRecord) -> Observation | None:
        base = reference(list(self.records), self.study.objective, self.study.baseline.key)
        return observation(record, self.study.space, base, self.study.objective)

    def _interrupt_pending(self) -> None:
        for number, (_, order, started_at, begun) in list(self._pending.items()):
            self._executor.cancel(number)
            try:
                self.records.append(_interrupted(order, started_at, time.monotonic() - begun))
            except StudyError:
                break  # the disk is what ended the run: its error is already on its way
        self._pending.clear()


def _interrupted(order: TrialOrder, started_at: str, duration_s: float) -> TrialRecord:
    return TrialRecord(
        number=order.number,
        kind=order.kind,
        hypothesis=order.hypothesis,
        key=order.key,
        values=order.values,
        started_at=started_at,
        duration_s=round(duration_s, 3),
        command="",
        outcome="interrupted",
    )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _clear(folder: Path) -> None:
    """What a launch of this number left when its run was killed is of no use."""
    shutil.rmtree(folder, ignore_errors=True)
