"""Hosts and the jobs on them, over Ray: discovery, liveness and transport are Ray's, GPUs are not.

On each host one agent owns all GPUs and hands them out itself, since Ray can neither place by
NUMA node nor put a GPU in quarantine. A job is a Ray task that asks for nothing. Nothing here
waits for Ray without a deadline.
"""

import io
import logging
import os
import pickle
import secrets
import shutil
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tuner import processes
from tuner.agent import JOB_VARIABLE, Agent, Settled
from tuner.errors import HostError, TunerError
from tuner.executor import Event, Function, HostInfo, JobDone, JobLost, JobNote, Slot
from tuner.server import default_run_root

_START_S = 120.0
_ANSWER_S = 30.0
_TAKE_S = 5.0
_SETTLE_S = 180.0
_CLOSE_S = 240.0
_CANCEL_S = 20.0
_OBJECT_STORE_BYTES = 80_000_000

# Ray takes "localhost" for a request to find the outer address; this is loopback all the same,
# and does not change when the network does.
_LOOPBACK = "127.0.0.2"

# What Ray sets in a worker and a server must not inherit: one OpenMP thread, for one thing.
_SET_BY_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")


class JobBug(Exception):
    """The job's own code raised; the message is its traceback."""


def fetch(ref: Any, timeout_s: float, what: str) -> Any:
    """The value of a Ray reference.

    Raises HostError where it does not come in time or its process or host died, JobBug where
    its code raised.
    """
    try:
        return ray.get(ref, timeout=timeout_s)
    except GetTimeoutError as error:
        raise HostError(f"{what}: no answer within {timeout_s:.0f} s") from error
    except RayTaskError as error:
        if isinstance(error.cause, TunerError):
            raise error.cause from error
        raise JobBug(str(error)) from error
    except RayError as error:
        raise HostError(f"{what}: {_first_line(error)}") from error


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
    cancelled_at_s: float | None = None
    outcome: JobDone | JobLost | None = None
    settling: Any = None
    settled: Settled | None = None
    notes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """A job raised an error of the tuner's own."""

    reason: str


class Cluster:
    """The hosts of a run; an Executor.

    Without an address, Ray is started for this process alone: it and everything under it ends
    when this process does. `use_gpus=False` declares GPUs even where there are real ones.
    """

    def __init__(self, gpus: int, address: str | None = None, *, use_gpus: bool = True) -> None:
        """Raises HostError where Ray does not start or answer, or a host has too few GPUs."""
        self._environment = dict(os.environ)
        self._session = _start_ray(address)
        self._mark = f"job-{secrets.token_hex(4)}"
        self._jobs: dict[int, _Job] = {}
        self._count = 0
        self._agent_options = {"declared": gpus, "use_gpus": use_gpus}
        self._work = ray.remote(num_cpus=0, max_retries=0)(_work)
        try:
            self._hosts = self._start_agents()
        except HostError:
            self._stop_ray()
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
        most = max((host.healthy for host in self._hosts), default=0)
        if gpus > most:
            raise HostError(
                f"{gpus} GPUs are asked for, the largest host has {most}",
                hint="GPUs that did not come back after a server are no longer handed out",
            )
        for host in self._hosts:
            mark = f"{self._mark}-{self._count}"
            slot = fetch(host.agent.reserve.remote(mark, gpus), _ANSWER_S, host.info.name)
            if slot:
                return self._launch(host, mark, slot, function, payload, folder)
        return None

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits up to `timeout_s` for something to happen.

        Raises HostError where no host is left.
        """
        end = time.monotonic() + timeout_s
        while True:
            left_s = end - time.monotonic()
            events = self._wait(max(0.0, min(left_s, _TAKE_S)))
            if events or left_s <= 0:
                return events
            if not self._hosts:
                raise HostError("every host is lost", hint="look at the logs of Ray on the hosts")

    def cancel(self, job: int) -> None:
        """End a job; its servers are gone when its JobLost comes."""
        running = self._jobs.get(job)
        if running and running.cancelled_at_s is None:
            running.cancelled_at_s = time.monotonic()
            ray.cancel(running.task, force=True)
            self._settle(running, JobLost(job=job, reason="cancelled"))

    def close(self) -> None:
        """Cancel all jobs, prove their servers gone, let go of the hosts.

        Raises HostError where a server could not be killed or proven gone.
        """
        end = time.monotonic() + _CLOSE_S
        survivors = 0
        try:
            for number in list(self._jobs):
                self.cancel(number)
            while self._jobs and self._hosts and time.monotonic() < end:
                before = dict(self._jobs)
                self._wait(_TAKE_S)
                survivors += sum(
                    job.settled.survivors for job in before.values() if job.settled is not None
                )
            unproven = len(self._jobs)
        finally:
            self._stop_ray()
        if survivors or unproven:
            raise HostError(
                f"{survivors} processes survived, {unproven} jobs were not seen to end",
                hint="`tuner doctor` finds and removes what is left",
            )

    def _start_agents(self) -> list[_Host]:
        with _probe() as probe:
            nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
            agents = [(node, self._start_agent(node)) for node in nodes]
            return [self._meet(node, agent, probe) for node, agent in agents]

    def _start_agent(self, node: str) -> Any:
        actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=1000)(Agent)
        return actor.options(scheduling_strategy=_on(node)).remote(**self._agent_options)

    def _meet(self, node: str, agent: Any, probe: Path) -> _Host:
        info, local = fetch(agent.describe.remote(probe), _START_S, f"the agent on node {node}")
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
        for host in self._hosts:
            self._ask(host)
        waiting = [host.asked for host in self._hosts]
        waiting += [job.task for job in self._jobs.values() if job.outcome is None]
        waiting += [job.settling for job in self._jobs.values() if job.settling is not None]
        if not waiting:
            return []
        ray.wait(waiting, num_returns=1, timeout=timeout_s, fetch_local=False)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        events: list[Event] = []
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
        events: list[Event] = []
        for mark, note in notes:
            if mark in marks:
                marks[mark].notes += 1
                events.append(JobNote(job=marks[mark].number, note=pickle.loads(note)))  # noqa: S301
        return events

    def _advance(self, job: _Job, ready: list[Any]) -> None:
        if job.outcome is None and job.task in ready:
            self._settle(job, self._outcome(job))
        elif job.settling is not None and job.settling in ready:
            try:
                job.settled = fetch(job.settling, _ANSWER_S, job.host.info.name)
            except HostError:
                return  # the agent is gone, which its host's own question finds out
            job.settling = None
            job.host.healthy = job.settled.healthy
            if job.settled.archive:
                _unpack(job.settled.archive, job.folder)

    def _outcome(self, job: _Job) -> JobDone | JobLost:
        try:
            result = fetch(job.task, _ANSWER_S, f"job {job.number}")
        except JobBug as bug:
            return JobLost(job=job.number, reason=_last_line(bug), bug=str(bug))
        except TunerError as error:
            return JobLost(job=job.number, reason=str(error))
        if isinstance(result, _Refused):
            return JobLost(job=job.number, reason=result.reason)
        return JobDone(job=job.number, result=result)

    def _settle(self, job: _Job, outcome: JobDone | JobLost) -> None:
        """Remember how the job ended and have its host prove that nothing of it is left."""
        job.outcome = outcome
        job.settling = job.host.agent.settle.remote(
            job.mark, kill=isinstance(outcome, JobLost), collect=not job.host.local
        )

    def _ended(self, job: _Job) -> list[Event]:
        """The job's last event, once its slot is free and all that it said was heard."""
        if job.outcome is None or job.settled is None or job.notes < job.settled.notes:
            return []
        del self._jobs[job.number]
        return [job.outcome]

    def _lose(self, host: _Host, why: str) -> None:
        """A host's agent is gone: its jobs are lost; another takes its place if the host lives."""
        with suppress(RayError):
            ray.kill(host.agent)
        lost = [job for job in self._jobs.values() if job.host is host]
        for job in lost:
            with suppress(RayError):
                ray.cancel(job.task, force=True)
            job.outcome = JobLost(job=job.number, reason=f"host {host.info.name} is lost: {why}")
        host.asked = None
        try:
            with _probe() as probe:
                revived = self._meet(host.node, self._start_agent(host.node), probe)
        except HostError:
            self._hosts.remove(host)
            for job in lost:
                job.settled = Settled(survivors=0, notes=0, healthy=0)
            return
        host.agent, host.healthy = revived.agent, revived.healthy
        for job in lost:
            self._settle(job, job.outcome)

    def _stop_ray(self) -> None:
        ray.shutdown()
        if self._session:
            shutil.rmtree(self._session, ignore_errors=True)


def _work(
    agent: Any,
    mark: str,
    function: Function,
    payload: Any,
    slot: Slot,
    folder: Path,
    environment: dict[str, str] | None,
) -> Any:
    """A job, in a process that does nothing else meanwhile."""
    _enter(mark, slot, environment)
    me = processes.read(os.getpid())
    last = agent.enrol.remote(mark, os.getpid(), me.started if me else 0)

    def note(value: Any) -> None:
        # Calls to one actor arrive in order: to know the last is to know all.
        nonlocal last
        last = agent.note.remote(mark, pickle.dumps(value))

    try:
        return function(payload, slot, folder, note)
    except TunerError as error:
        return _Refused(reason=str(error))
    finally:
        fetch(last, _ANSWER_S, f"the agent of {slot.host}")


def _enter(mark: str, slot: Slot, environment: dict[str, str] | None) -> None:
    """Undo what Ray did to this process, mark its children, pin all its threads."""
    for name in _SET_BY_RAY:
        os.environ.pop(name, None)
    if environment is not None:
        os.environ.update(environment)
    os.environ[JOB_VARIABLE] = mark
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), slot.client_cores)


def _start_ray(address: str | None) -> Path | None:
    """Attach to a cluster, or start Ray for this process alone; returns its folder then."""
    if ray.is_initialized():
        raise HostError("Ray already runs in this process", hint="close the other Cluster first")
    try:
        if address is not None:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            return None
        with _local_environment():
            context = ray.init(
                address="local",
                num_cpus=1,
                num_gpus=0,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address=_LOOPBACK,
                _temp_dir=str(default_run_root() / "ray"),
            )
    except (RuntimeError, ConnectionError, ValueError, OSError, RayError) as error:
        where = f"at {address}" if address else "on this machine"
        raise HostError(f"Ray does not start {where}: {_first_line(error)}") from error
    return Path(context.address_info["session_dir"])


@contextmanager
def _local_environment() -> Iterator[None]:
    """What Ray's own processes are started with; this process keeps its environment.

    Ray's ports are open to the network even on one machine, hence a token that only they know.
    """
    before = dict(os.environ)
    os.environ.pop("RAY_AUTH_MODE", None)  # unset, a local Ray takes to tokens by itself
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.update(
        RAY_AUTH_TOKEN=secrets.token_hex(32),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_memory_monitor_refresh_ms="0",
        RAY_enable_metrics_collection="0",
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
