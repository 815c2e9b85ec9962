"""Hosts and the jobs on them, over Ray: discovery, liveness and transport are Ray's, GPUs are not.

On each host one agent owns all GPUs and hands them out itself, since Ray can neither place by
NUMA node nor put a GPU in quarantine. A job is a Ray task that asks for nothing. Nothing here
waits for Ray without a deadline.
"""

import os
import pickle
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tuner import processes, ray_session
from tuner.agent import Agent, Settled, end_servers
from tuner.errors import HostError, TunerError
from tuner.executor import Event, Function, HostInfo, JobDone, JobLost, JobNote, Slot
from tuner.job import Returned, call, enter, unpack
from tuner.ray_session import HostLost, JobBug, fetch
from tuner.server import default_run_root

import ray  # isort: skip  (after ray_session, which sets what Ray reads when imported)
from ray.exceptions import RayError  # isort: skip
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # isort: skip

_START_S = 120.0
_ANSWER_S = 30.0
_TAKE_S = 5.0
_LOOK_S = 1.0
_REVIVE_S = 60.0
_CLOSE_S = 240.0
_CALLS_AT_ONCE = 1000


@dataclass(slots=True)
class _Host:
    """One host and its agent; `asked` is the question for news that is under way."""

    node: str
    agent: Any
    info: HostInfo
    local: bool
    healthy: int
    asked: Any = None
    asked_at_s: float = 0.0


@dataclass(slots=True)
class _Job:
    number: int
    mark: str
    host: _Host
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
        self._environment = dict(os.environ)
        self._session = ray_session.start(address)
        self._mark = f"job-{secrets.token_hex(4)}"
        self._jobs: dict[int, _Job] = {}
        self._count = 0
        self._survivors = 0
        self._ended_with_ray: list[Event] = []
        self._agent_options = {"declared": gpus, "use_gpus": use_gpus}
        self._work: Any = ray.remote(num_cpus=0, max_retries=0)(_work)
        try:
            self._hosts = self._start_agents()
        except TunerError:
            self._session.stop()
            raise

    @property
    def hosts(self) -> tuple[HostInfo, ...]:
        """The hosts that are left, in the order in which they were found."""
        return tuple(host.info for host in self._hosts)

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

        Raises HostError where no host has that many GPUs (left).
        """
        if not self._session.alive():
            self._restart()
        most = max((host.healthy for host in self._hosts), default=0)
        if gpus > most:
            raise HostError(
                f"{gpus} GPUs are asked for, the largest host has {most}",
                hint="GPUs that did not come back after a server are no longer handed out",
            )
        mark = f"{self._mark}-{self._count}"
        for host in list(self._hosts):
            try:
                slot = fetch(host.agent.reserve.remote(mark, gpus), _ANSWER_S, host.info.name)
                if slot:
                    return self._launch(host, mark, slot, function, payload, folder)
            except HostLost as error:
                self._lose(host, error.message)
        return None

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits up to `timeout_s` for something to happen.

        Raises HostError where no host is left.
        """
        end = time.monotonic() + timeout_s
        while True:
            left_s = end - time.monotonic()
            events = self._wait(max(0.0, min(left_s, _LOOK_S)))
            if events or left_s <= 0:
                return events
            if not self._hosts:
                raise HostError("every host is lost", hint="look at the logs of Ray on the hosts")

    def cancel(self, job: int) -> None:
        """End a job; its servers are gone when its JobLost comes.

        A job that has ended by itself meanwhile keeps the event that it ended with.
        """
        running = self._jobs.get(job)
        if running and running.outcome is None:
            running.cancelled = True
            with suppress(RayError):
                ray.cancel(running.task, force=True)
            self._settle(running, JobLost(job=job, reason="cancelled"))

    def close(self) -> None:
        """Cancel all jobs, prove their servers gone, let go of the hosts.

        Raises HostError where servers could not be killed, or could not be seen to end.
        """
        end = time.monotonic() + _CLOSE_S
        try:
            for number in list(self._jobs):
                self.cancel(number)
            while self._jobs and self._hosts and time.monotonic() < end:
                self._wait(_TAKE_S)
        finally:
            self._session.stop()
        if self._survivors or self._jobs:
            raise HostError(
                f"{self._survivors} processes of servers could not be killed, "
                f"{len(self._jobs)} jobs were not seen to end",
                hint="look for processes with TUNER_SERVER_TAG in their environment",
            )

    def _start_agents(self) -> list[_Host]:
        with _probe() as probe:
            agents = [(node, self._start_agent(node)) for node in _living_nodes()]
            return [self._meet(node, agent, probe, _START_S) for node, agent in agents]

    def _start_agent(self, node: str) -> Any:
        actor: Any = ray.remote(Agent)
        return actor.options(
            num_cpus=0,
            max_restarts=0,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy=_on(node),
        ).remote(**self._agent_options)

    def _meet(self, node: str, agent: Any, probe: Path, timeout_s: float) -> _Host:
        info, local = fetch(agent.describe.remote(probe), timeout_s, f"the agent on node {node}")
        return _Host(node=node, agent=agent, info=info, local=local, healthy=len(info.gpus))

    def _launch(
        self, host: _Host, mark: str, slot: Slot, function: Function, payload: Any, folder: Path
    ) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        there = folder.resolve()
        if not host.local:
            there = fetch(host.agent.folder.remote(mark), _ANSWER_S, host.info.name)
        environment = self._environment if host.local else None
        task = self._work.options(scheduling_strategy=_on(host.node)).remote(
            host.agent, mark, function, payload, slot, there, environment
        )
        number = self._count
        self._count += 1
        self._jobs[number] = _Job(number, mark, host, folder, task)
        return number

    def _wait(self, timeout_s: float) -> list[Event]:
        """Wait for one thing to happen and take in all that has."""
        if not self._session.alive():
            self._restart()
        if self._ended_with_ray:
            events, self._ended_with_ray = self._ended_with_ray, []
            return events
        for host in self._hosts:
            self._ask(host)
        waiting = [host.asked for host in self._hosts]
        waiting += [job.task for job in self._jobs.values() if job.outcome is None]
        waiting += [job.settling for job in self._jobs.values() if job.settling is not None]
        if not waiting:
            return []
        ray.wait(waiting, num_returns=1, timeout=timeout_s, fetch_local=False)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        events = []
        for host in list(self._hosts):
            events += self._hear(host, host.asked in ready)
        for job in list(self._jobs.values()):
            self._advance(job, ready)
            events += self._ended(job)
        return events

    def _ask(self, host: _Host) -> None:
        if host.asked is None:
            host.asked = host.agent.take.remote(_TAKE_S)
            host.asked_at_s = time.monotonic()

    def _hear(self, host: _Host, answered: bool) -> list[Event]:
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
            # Where the agent died instead of answering, its host's own question says so.
            with suppress(HostLost):
                self._settled(job, fetch(job.settling, _ANSWER_S, job.host.info.name))

    def _settled(self, job: _Job, settled: Settled) -> None:
        job.settling = None
        job.settled = settled
        job.host.healthy = settled.healthy
        self._survivors += settled.survivors
        if settled.archive:
            unpack(settled.archive, job.folder)

    def _outcome(self, job: _Job) -> JobDone | JobLost:
        try:
            result = fetch(job.task, _ANSWER_S, f"job {job.number}")
        except JobBug as bug:
            return JobLost(job=job.number, reason=bug.last_line, bug=str(bug))
        except TunerError as error:
            return JobLost(job=job.number, reason=str(error))
        if result.refused is not None:
            return JobLost(job=job.number, reason=result.refused)
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

    def _restart(self) -> None:
        """Ray died on this machine: end what ran under it, and start it afresh."""
        lost = list(self._jobs.values())
        self._session.stop()
        self._survivors += sum(end_servers(job.mark) for job in lost)
        self._jobs.clear()
        self._hosts = []
        self._session = ray_session.start(None)
        self._hosts = self._start_agents()
        self._ended_with_ray += [
            job.outcome or JobLost(job=job.number, reason="Ray died on this machine")
            for job in lost
        ]

    def _lose(self, host: _Host, why: str) -> None:
        """A host's agent is gone: its jobs are lost; another takes its place if the host lives."""
        if not self._session.alive():
            return  # what comes next finds that and starts all afresh
        lost = [job for job in self._jobs.values() if job.host is host]
        with suppress(RayError):
            ray.kill(host.agent)
            for job in lost:
                ray.cancel(job.task, force=True)
        host.asked = None
        try:
            if host.node not in _living_nodes():
                raise HostLost(why)
            with _probe() as probe:
                agent = self._start_agent(host.node)
                revived = self._meet(host.node, agent, probe, _REVIVE_S)
        except HostError:
            self._hosts.remove(host)
        else:
            host.agent, host.healthy = revived.agent, revived.healthy
        for job in lost:
            gone = JobLost(job=job.number, reason=f"host {host.info.name} is lost: {why}")
            self._settle(job, job.outcome or gone)
            if host not in self._hosts:
                self._settled(job, Settled(survivors=0, notes=0, healthy=0))


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


def _living_nodes() -> list[str]:
    known: Any = ray.nodes  # untyped
    return [node["NodeID"] for node in known() if node["Alive"]]


@contextmanager
def _probe() -> Iterator[Path]:
    """A file that only a host with this machine's files can see."""
    path = default_run_root() / f"probe-{secrets.token_hex(8)}"
    path.touch()
    try:
        yield path
    finally:
        path.unlink()


def _on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)
