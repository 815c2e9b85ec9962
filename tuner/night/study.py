"""The loop of a night: choose, launch, record, tell; any interruption continues from the records.

Knows neither Ray nor a terminal: work is done by an Executor, what happens is said to a Listener.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tuner.definitions.counted import counted
from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.errors import HostError, StudyError
from tuner.failures.classifier import Failure, verdict
from tuner.hosts.executor import Executor, JobDone, JobLost, JobNote
from tuner.night.budget import BudgetClock
from tuner.night.course import TrialNote, TrialOrder
from tuner.night.environment import refuse_other_version
from tuner.night.launches import expected_launch_s
from tuner.night.lessons import all_lessons, lessons
from tuner.night.orders import order as ordered_trial
from tuner.night.schedule import Job, Situation, Stop, Wait, next_job
from tuner.night.trial import run_trial
from tuner.records import Outcome, Records, TrialRecord
from tuner.search.searcher import Observation, Searcher, observation
from tuner.verdicts.decision import reference

POLL_S = 0.5
LOSSES_IN_A_ROW = 1
"""Launches that may be lost one after another (worker killed, host away) before the run ends."""


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

    def tick(self, clock: BudgetClock) -> None:
        """Time has passed."""


class StudyRun:
    """One run of a study: from where its records stand until its budget or its questions end.

    `kept` is told of all records after each that was written.
    """

    def __init__(
        self,
        study: LoadedStudy,
        records: Records,
        executor: Executor,
        searcher: Searcher,
        listener: Listener,
        kept: Callable[[Sequence[TrialRecord]], None] = lambda _: None,
    ) -> None:
        self.study = study
        self.records = records
        self.clock = BudgetClock.of(study, list(records), datetime.now())
        self._executor = executor
        self._searcher = searcher
        self._listener = listener
        self._kept = kept
        self._pending: dict[int, _Pending] = {}
        self._asked: Configuration | None = None
        self._lost_in_a_row = 0
        self._session_start = len(records)
        self._exhausted = False
        self._next_number = records.next_number
        self._searcher.replay(
            [
                seen
                for record in all_lessons(list(records), admit=study.objective.admits)
                if (seen := self._observation(record)) is not None
            ]
        )

    def run(self) -> Stop:
        """Until the budget is used up or nothing is left to learn.

        Raises HostError where the host gives up, StudyError where the records cannot be written.
        """
        try:
            self._listener.tick(self.clock)
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
            hosts = len(self._executor.hosts)
            self.clock.hosts = max(1, hosts)
            if len(self._pending) >= hosts:
                return Wait()
            choice = next_job(self._situation())
            if not isinstance(choice, Job):
                return choice
            configuration = choice.configuration or self._proposal()
            if configuration is None:
                self._exhausted = True
            elif not self._start(choice, configuration):
                return Wait()

    def _proposal(self) -> Configuration | None:
        """The search's next; one that found no free slot is kept until it does."""
        if self._asked is None:
            self._asked = self._searcher.ask()
        return self._asked

    def _situation(self) -> Situation:
        records = list(self.records)
        return Situation(
            space=self.study.space,
            objective=self.study.objective,
            baseline=self.study.baseline,
            records=records,
            pending=[pending.job for pending in self._pending.values()],
            launches_left=self.clock.launches_left(records, len(self._pending)),
            limit=self.clock.limit(records, len(self._pending)),
            exhausted=self._exhausted,
            session_start=self._session_start,
        )

    def _start(self, job: Job, configuration: Configuration) -> bool:
        """Launch it; False while no slot is free."""
        order = ordered_trial(self.study, list(self.records), self._next_number, job, configuration)
        pending = _Pending(job=job, order=order)
        declared = self.study.definition.hardware.gpus
        if order.gpus > declared:
            self._took(pending)
            self._keep(_too_large(pending, declared))
            return True
        folder = self.study.folder / "trials" / f"{order.number:04d}"
        _clear(folder)
        number = self._executor.submit(run_trial, order, gpus=order.gpus, folder=folder)
        if number is None:
            return False
        self._took(pending)
        self._pending[number] = pending
        self._listener.started(job, order)
        return True

    def _took(self, pending: "_Pending") -> None:
        self._next_number = pending.order.number + 1
        if pending.job.configuration is None:
            self._asked = None

    def _handle_events(self) -> None:
        """Everything that has ended is recorded before anything is raised."""
        lost = []
        for event in self._executor.poll(POLL_S):
            if isinstance(event, JobNote):
                self._listener.note(event.note)
            elif event.job in self._pending:
                pending = self._pending.pop(event.job)
                if isinstance(event, JobDone):
                    self._lost_in_a_row = 0
                    self._keep(event.result)
                else:
                    self._lost_in_a_row += 1
                    self._keep(pending.interrupted())
                    lost.append((pending, event))
        for pending, event in lost:
            self._judge_loss(pending, event)

    def _judge_loss(self, pending: "_Pending", event: JobLost) -> None:
        """One lost launch is made again; a second in a row is the host's word."""
        number = pending.order.number
        if event.bug:
            raise RuntimeError(f"trial {number}: {event.reason}\n{event.bug}")
        if event.again and self._lost_in_a_row <= LOSSES_IN_A_ROW:
            return
        again = ", as the one before" if event.again else ""
        raise HostError(
            f"trial {number} ({pending.job.kind}) was lost{again}: {event.reason}",
            hint="Everything before it is recorded. Run again: the study continues there.",
        )

    def _keep(self, record: TrialRecord) -> None:
        """The record first, then everything that can be rebuilt from it.

        Raises StudyChanged, recording nothing, where another version of the engine answered.
        """
        refuse_other_version(self.study.folder, [*self.records, record], self.study.space)
        self.records.append(record)
        self.clock.launch_s = expected_launch_s(self.study, list(self.records))
        for lesson in lessons(list(self.records), admit=self.study.objective.admits):
            seen = self._observation(lesson)
            if seen is not None:
                self._searcher.tell(seen)
        self._kept(list(self.records))
        self._listener.ended(record, list(self.records))

    def _observation(self, record: TrialRecord) -> Observation | None:
        base = reference(list(self.records), self.study.objective, self.study.baseline.key)
        return observation(record, self.study.space, base, self.study.objective)

    def _interrupt_pending(self) -> None:
        for number, pending in list(self._pending.items()):
            self._executor.cancel(number)
            try:
                self.records.append(pending.interrupted())
            except StudyError:
                break  # the disk is what ended the run: its error is already on its way
        self._pending.clear()


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A launch in flight."""

    job: Job
    order: TrialOrder
    started_at: str = field(default_factory=_now)
    begun: float = field(default_factory=time.monotonic)

    def interrupted(self) -> TrialRecord:
        """The record of a launch that nobody let end."""
        return self._record(outcome="interrupted")

    def failed(self, failure: Failure) -> TrialRecord:
        """The record of a launch that could not even begin."""
        return self._record(outcome="failed", failure=failure)

    def _record(self, outcome: Outcome, failure: Failure | None = None) -> TrialRecord:
        return TrialRecord(
            number=self.order.number,
            kind=self.order.kind,
            hypothesis=self.order.hypothesis,
            key=self.order.key,
            values=self.order.values,
            started_at=self.started_at,
            duration_s=round(time.monotonic() - self.begun, 3),
            command="",
            outcome=outcome,
            failure=failure,
            rehearsal=self.order.launch.engine.name == "rehearsal",
        )


def _too_large(pending: _Pending, declared: int) -> TrialRecord:
    cause = f"needs {counted(pending.order.gpus, 'GPU')}, and hardware.gpus says {declared}"
    failure = verdict(
        "arg_validation",
        cause,
        engine=pending.order.launch.engine.name,
        phase="starting",
        advice="Correct hardware.gpus, or forbid the combination in the space.",
    )
    return pending.failed(failure)


def _clear(folder: Path) -> None:
    """What a launch of this number left when its run was killed is of no use."""
    shutil.rmtree(folder, ignore_errors=True)
