"""Hosts and the jobs on them, over Ray: discovery, liveness and transport are Ray's, GPUs are not.

On each host one agent owns all GPUs and hands them out itself, since Ray can neither place by
NUMA node nor put a GPU in quarantine. A job is a Ray task that asks for nothing. Nothing here
waits for Ray without a deadline.
"""

import logging
import os
import pickle
import secrets
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tuner.errors import HostError, TunerError, remedy
from tuner.hosts import processes, ray_leftovers, ray_session
from tuner.hosts.agent import Settled, end_servers
from tuner.hosts.executor import Event, Function, HostInfo, JobDone, JobLost, JobNote, Slot
from tuner.hosts.job import RUN_VARIABLE, Returned, call, enter, unpack
from tuner.hosts.ray_session import HostLost, JobBug, fetch, in_short
from tuner.hosts.roster import Host, Roster, on

import ray  # isort: skip  (after ray_session, which sets what Ray reads when imported)
from ray.exceptions import RayError  # isort: skip

logger = logging.getLogger(__name__)

_ANSWER_S = 30.0
_TAKE_S = 5.0
_AWAY_S = 10.0
_LOOK_S = 1.0
_CLOSE_S = 240.0


@dataclass(slots=True)
class _Job:
    number: int
    mark: str
    host: Host
    slot: Slot
    folder: Path
    task: Any
    cancelled: bool = False
    outcome: JobDone | JobLost | None = None
    settling: Any = None
    settled: Settled | None = None
    notes: int = 0
    early: dict[int, bytes] = field(default_factory=dict)

    def said(self) -> Iterator[JobNote]:
        """The notes that have come, in the order in which they were sent."""
        while self.notes in self.early:
            note = pickle.loads(self.early.pop(self.notes))  # noqa: S301  (this tuner's own)
            self.notes += 1
            yield JobNote(job=self.number, note=note)


class Cluster:
    """The hosts of a run; an Executor.

    Without an address, Ray is started for this process alone: it and everything under it ends
    when this process does. `use_gpus=False` declares GPUs even where there are real ones.
    """

    def __init__(self, gpus: int, address: str | None = None, *, use_gpus: bool = True) -> None:
        """Raises HostError where Ray does not start or answer, or a host has too few GPUs."""
        self._environment = {**os.environ, RUN_VARIABLE: ray_leftovers.mark()}
        self._session = ray_session.start(address)
        self._mark = f"job-{secrets.token_hex(4)}"
        self._jobs: dict[int, _Job] = {}
        self._count = 0
        self._survivors = 0
        self._unproven: list[str] = []
        self._ended_with_ray: list[Event] = []
        self._waited_s = time.monotonic()
        self._roster = Roster(gpus, use_gpus=use_gpus)
        self._work: Any = ray.remote(num_cpus=0, max_retries=0)(_work)
        try:
            self._roster.start()
        except TunerError:
            self._session.stop()
            raise

    @property
    def hosts(self) -> tuple[HostInfo, ...]:
        """The hosts that are there, in the order in which they were found."""
        return tuple(host.info for host in self._roster.hosts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, function: Function, payload: Any, *, gpus: int, folder: Path) -> int | None:
        """Start a job and return its number, or None while no slot of that size is free.

        None where every host with that many GPUs is busy, and for ten minutes after a host was
        lost, which may come back. Raises HostError where no host has that many GPUs outside of
        quarantine and none is waited for, or the folder cannot be made.
        """
        if not self._session.alive():
            self._restart()
        largest = max(self._roster.hosts, key=lambda host: host.healthy, default=None)
        if largest is None or gpus > largest.healthy:
            if self._roster.awaited():
                return None
            raise _too_few(gpus, largest, self._roster.losses())
        _make(folder)
        mark = f"{self._mark}-{self._count}"
        for host in list(self._roster.hosts):
            try:
                slot = fetch(host.agent.reserve.remote(mark, gpus), _ANSWER_S, host.info.name)
                if slot:
                    return self._launch(host, mark, slot, function, payload, folder)
            except HostLost as error:
                self._lose(host, error.message)
        return None

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits up to `timeout_s` for something to happen.

        Bringing back a host whose agent died can take a minute longer. Raises HostError where
        every host is lost and none came back for ten minutes, or Ray does not start again.
        """
        end = time.monotonic() + timeout_s
        while True:
            left_s = end - time.monotonic()
            events = self._wait(max(0.0, min(left_s, _LOOK_S)))
            if events or left_s <= 0:
                return events
            if not self._roster.hosts and not self._roster.awaited():
                raise HostError(
                    f"every host is lost: {self._roster.losses()}",
                    hint="look at the logs of Ray on the hosts",
                )

    def cancel(self, job: int) -> None:
        """End a job; its servers are gone when its JobLost comes.

        A job that has ended by itself meanwhile keeps the event that it ended with.
        """
        running = self._jobs.get(job)
        if running and running.outcome is None:
            running.cancelled = True
            with suppress(RayError):
                ray.cancel(running.task, force=True)
            self._settle(running, JobLost(job=job, reason="cancelled", again=False))

    def close(self) -> None:
        """Cancel all jobs, prove their servers gone, let go of the hosts.

        Raises HostError where servers could not be killed, or could not be seen to end.
        """
        end = time.monotonic() + _CLOSE_S
        try:
            for number in list(self._jobs):
                self.cancel(number)
            while self._jobs and self._roster.hosts and time.monotonic() < end:
                self._wait(_TAKE_S)
        finally:
            self._roster.close()
            self._session.stop()
        if self._unproven:
            raise HostError(
                f"containers may still run: {'; '.join(self._unproven)}",
                hint="their runtime must answer before they can be removed: start its daemon; the "
                "next run, or `tuner doctor`, then removes them",
            )
        if self._survivors or self._jobs:
            raise HostError(
                f"{self._survivors} processes of servers could not be killed, "
                f"{len(self._jobs)} jobs were not seen to end",
                hint="look for processes with TUNER_SERVER_TAG in their environment",
            )

    def _launch(
        self, host: Host, mark: str, slot: Slot, function: Function, payload: Any, folder: Path
    ) -> int:
        there = folder.resolve()
        if not host.local:
            there = fetch(host.agent.folder.remote(mark), _ANSWER_S, host.info.name)
        environment = self._environment if host.local else None
        task = self._work.options(scheduling_strategy=on(host.node)).remote(
            host.agent, mark, function, payload, slot, there, environment
        )
        number = self._count
        self._count += 1
        self._jobs[number] = _Job(number, mark, host, slot, folder, task)
        return number

    def _wait(self, timeout_s: float) -> list[Event]:
        """Wait for one thing to happen and take in all that has."""
        if not self._session.alive():
            self._bury()
            if not self._ended_with_ray:
                self._restart()
        if self._ended_with_ray:
            events, self._ended_with_ray = self._ended_with_ray, []
            return events
        self._roster.look()
        self._notice_absence()
        for host in self._roster.hosts:
            self._ask(host)
        waiting = [host.asked for host in self._roster.hosts]
        waiting += [job.task for job in self._jobs.values() if job.outcome is None]
        waiting += [job.settling for job in self._jobs.values() if job.settling is not None]
        if not waiting:
            time.sleep(timeout_s)
            return []
        ray.wait(waiting, num_returns=1, timeout=timeout_s, fetch_local=False)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        events = []
        for host in list(self._roster.hosts):
            events += self._hear(host, host.asked in ready)
        for job in list(self._jobs.values()):
            self._advance(job, ready)
            events += self._ended(job)
        return events

    def _notice_absence(self) -> None:
        """The time in which this process itself was frozen is not held against its hosts."""
        now_s = time.monotonic()
        away_s, self._waited_s = now_s - self._waited_s, now_s
        if away_s > _AWAY_S:
            for host in self._roster.hosts:
                host.asked_at_s += away_s

    def _ask(self, host: Host) -> None:
        if host.asked is None:
            host.asked = host.agent.take.remote(_TAKE_S)
            host.asked_at_s = time.monotonic()

    def _hear(self, host: Host, answered: bool) -> list[Event]:
        if not answered:
            if time.monotonic() - host.asked_at_s > _TAKE_S + _ANSWER_S:
                self._lose(host, "its agent does not answer")
            return []
        try:
            notes = fetch(host.asked, _ANSWER_S, host.info.name)
        except HostError as error:
            self._lose(host, error.message)
            return []
        host.asked = None
        marks = {job.mark: job for job in self._jobs.values()}
        for mark, number, note in notes:
            if mark in marks:
                marks[mark].early[number] = note
        return [note for job in marks.values() for note in job.said()]

    def _advance(self, job: _Job, ready: list[Any]) -> None:
        if job.outcome is None and job.task in ready:
            self._settle(job, self._outcome(job))
        elif job.settling is not None and job.settling in ready:
            try:
                self._settled(job, fetch(job.settling, _ANSWER_S, job.host.info.name))
            except HostLost:
                pass  # the agent died instead of answering: its host's own question says so
            except (JobBug, TunerError) as error:
                self._unproved(job, error)

    def _settled(self, job: _Job, settled: Settled) -> None:
        job.settling = None
        job.settled = settled
        job.host.quarantined = settled.quarantined
        self._survivors += settled.survivors
        self._unproven += settled.unproven
        if settled.archive:
            try:
                unpack(settled.archive, job.folder)
            except (OSError, tarfile.TarError) as error:
                logger.warning("files of job %d did not come back: %s", job.number, error)

    def _unproved(self, job: _Job, error: JobBug | TunerError) -> None:
        """What became of the job's servers is not known: its result stands, its GPUs rest."""
        logger.warning("job %d was not seen to end: %s", job.number, error)
        rest = dict.fromkeys(job.slot.gpus, f"its servers were not seen to end: {in_short(error)}")
        quarantined = job.host.quarantined | rest
        self._settled(job, Settled(survivors=0, notes=0, quarantined=quarantined))

    def _outcome(self, job: _Job) -> JobDone | JobLost:
        try:
            result = fetch(job.task, _ANSWER_S, f"job {job.number}")
        except JobBug as bug:
            return JobLost(job=job.number, reason=bug.last_line, bug=str(bug), again=False)
        except TunerError as error:
            again = isinstance(error, HostLost)
            return JobLost(job=job.number, reason=str(error), again=again)
        if result.refused is not None:
            return JobLost(job=job.number, reason=result.refused, again=result.again)
        return JobDone(job=job.number, result=result.result)

    def _settle(self, job: _Job, outcome: JobDone | JobLost) -> None:
        """Remember how the job ended and have its host prove that nothing of it is left."""
        job.outcome = outcome
        job.settling = job.host.agent.settle.remote(
            job.mark, kill=job.cancelled, collect=not job.host.local
        )

    def _ended(self, job: _Job) -> list[Event]:
        """The job's last event, once its slot is free and all that it said was heard."""
        if job.outcome is None or job.settled is None or job.notes < job.settled.notes:
            return []
        del self._jobs[job.number]
        return [job.outcome]

    def _bury(self) -> None:
        """Ray died on this machine: end what ran under it. What had ended keeps its result."""
        lost = list(self._jobs.values())
        self._session.stop()
        for remains in [end_servers(job.mark) for job in lost]:
            self._survivors += remains.survivors
            self._unproven += remains.unproven
        self._jobs.clear()
        self._ended_with_ray += [
            job.outcome or JobLost(job=job.number, reason="Ray died on this machine")
            for job in lost
        ]

    def _restart(self) -> None:
        """Start Ray afresh where it died."""
        self._bury()
        self._session = ray_session.start(None)
        self._roster.start()

    def _lose(self, host: Host, why: str) -> None:
        """A host's agent is gone: its jobs are lost; another takes its place if the host lives."""
        if not self._session.alive():
            return  # what comes next finds that and starts all afresh
        lost = [job for job in self._jobs.values() if job.host is host]
        with suppress(RayError):
            for job in lost:
                ray.cancel(job.task, force=True)
        self._roster.revive(host, why)
        for job in lost:
            gone = JobLost(job=job.number, reason=f"host {host.info.name} is lost: {why}")
            self._settle(job, job.outcome or gone)
            if host not in self._roster.hosts:
                quarantined = host.quarantined
                self._settled(job, Settled(survivors=0, notes=0, quarantined=quarantined))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"{error.filename or folder}: cannot be made: {error.strerror}",
            hint=f"{remedy(error)}, then run again: the study continues.",
        ) from error


def _too_few(gpus: int, largest: Host | None, losses: str) -> HostError:
    if largest is None:
        return HostError(f"{gpus} GPUs are asked for, every host is lost: {losses}")
    return HostError(
        f"{gpus} GPUs are asked for, the largest host has {largest.words()}",
        hint="nvidia-smi on that host shows who holds a GPU, its kernel's log whether one is lost"
        if largest.quarantined
        else "hardware.gpus in the study is what each host has",
    )


def _work(
    agent: Any,
    mark: str,
    function: Function,
    payload: Any,
    slot: Slot,
    folder: Path,
    environment: dict[str, str] | None,
) -> Returned:
    """A job, in a process that does nothing else meanwhile."""
    enter(mark, slot, environment)
    me = processes.read(os.getpid())
    sent = [agent.enrol.remote(mark, os.getpid(), me.started if me else 0)]

    def send(note: bytes) -> None:
        # Not waited for: a job must not stand still in the middle of a measurement.
        sent.append(agent.note.remote(mark, len(sent) - 1, note))

    try:
        return call(function, payload, slot, folder, send)
    finally:
        fetch(sent, _ANSWER_S, f"the agent of {slot.host}")
