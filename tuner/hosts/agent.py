"""What owns one host: its GPUs, cores and ports, its running jobs, and the proof that they ended.

Knows nothing of Ray: `tuner.hosts.cluster` runs it as an actor, one on each host.
"""

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.definitions.counted import counted
from tuner.errors import HostError
from tuner.hosts import gpus, port_locks, processes, slots
from tuner.hosts.executor import HostInfo, Slot
from tuner.hosts.hardware import cpu_model
from tuner.hosts.job import JOB_VARIABLE, pack
from tuner.hosts.leftovers import Swept, clear_job, records
from tuner.hosts.port_locks import PortLock
from tuner.hosts.server import default_run_root, sweep

_SUPERVISORS_S = 10.0
_KILL_LIMIT_S = 30.0
_DRAIN_LIMIT_S = 60.0
_DRAINED_GB = 1.0
_TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A job's end: what could not be killed, how many notes it sent, its files if asked for.

    `unproven` says of each container that may still run why; `quarantined` is every GPU that the
    host no longer hands out, and why.
    """

    survivors: int
    notes: int
    unproven: tuple[str, ...] = ()
    quarantined: dict[str, str] = field(default_factory=dict)
    archive: bytes | None = None


@dataclass(slots=True)
class _Job:
    slot: Slot
    locks: tuple[PortLock, ...]
    notes: int = 0
    worker: tuple[int, int] | None = None


class Agent:
    """Owns one host for as long as one run of the tuner lasts, from when it is asked for it."""

    def __init__(
        self, *, declared: int, use_gpus: bool, quarantined: Mapping[str, str] | None = None
    ) -> None:
        """`quarantined` are GPUs that an agent before this one no longer handed out."""
        self._declared = declared
        self._use_gpus = use_gpus
        self._table = slots.SlotTable((), quarantined=dict(quarantined or {}))
        self._jobs: dict[str, _Job] = {}
        self._notes: list[tuple[str, int, bytes]] = []
        self._noted = asyncio.Event()
        self._next_block = random.randrange(1 << 16)  # noqa: S311  (spreads, protects nothing)

    async def describe(self, probe: Path) -> tuple[HostInfo, bool]:
        """Take the host over; says what it is, and whether it sees the caller's files.

        Raises HostError where it has fewer GPUs than the study says, or one does not answer, and
        where a container of an earlier run may still hold them.
        """
        # Not when the agent is made: what is raised there comes wrapped in words of Ray's.
        self._root = default_run_root()
        _refuse_unproven(self._root, sweep(self._root))
        port_locks.sweep(self._root)
        found = gpus.find_gpus() if self._use_gpus else ()
        self._info = _describe(found, self._declared)
        server_cores, self._client_cores = slots.split_cores(sorted(os.sched_getaffinity(0)))
        nodes = [gpu.numa for gpu in found[: self._declared]] or [None] * self._declared
        shares = slots.share_cores(nodes, _cores_of_nodes(), server_cores)
        self._table.gpus = tuple(
            slots.Gpu(id=name, numa=node, cores=cores)
            for name, node, cores in zip(self._info.gpus, nodes, shares, strict=True)
        )
        real = self._info.gpus if self._info.real_gpus else ()
        self._idle_gb, unreadable = gpus.used_memory_gb(real)
        for name, why in unreadable.items():
            raise HostError(
                f"{name} of {self._info.name}: {why}",
                hint="nvidia-smi and the kernel's log on that host say more",
            )
        return self._info, probe.exists()

    async def reserve(self, job: str, count: int) -> Slot | None:
        """A slot for a job, None while too little is free."""
        chosen = self._table.take(job, count)
        if chosen is None:
            return None
        try:
            locks, ports = self._take_ports(count)
        except OSError as error:
            self._table.give_back(job)
            raise HostError(f"{self._root} on {self._info.name}: {error.strerror}") from error
        except HostError:
            self._table.give_back(job)
            raise
        slot = Slot(
            host=self._info.name,
            gpus=tuple(gpu.id for gpu in chosen),
            real_gpus=self._info.real_gpus,
            server_cores=tuple(sorted({core for gpu in chosen for core in gpu.cores})),
            client_cores=self._client_cores,
            ports=ports,
            gpu_cores=tuple(gpu.cores for gpu in chosen),
        )
        self._jobs[job] = _Job(slot, locks)
        return slot

    async def folder(self, job: str) -> Path:
        """Where a job leaves its files on a host that does not see the caller's."""
        path = self._root / "jobs" / job
        path.mkdir(parents=True, exist_ok=True)
        return path

    async def enrol(self, job: str, pid: int, started: int) -> None:
        """The process that runs the job."""
        if job in self._jobs:
            self._jobs[job].worker = (pid, started)

    async def note(self, job: str, number: int, note: bytes) -> None:
        """Keep what a job said until it is taken; notes may come in another order than sent."""
        if job in self._jobs:
            self._jobs[job].notes += 1
            self._notes.append((job, number, note))
            self._noted.set()

    async def take(self, wait_s: float) -> list[tuple[str, int, bytes]]:
        """What jobs said since the last call; waits for something up to `wait_s`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._noted.wait(), wait_s)
        self._noted.clear()
        notes, self._notes = self._notes, []
        return notes

    async def settle(self, job: str, *, kill: bool, collect: bool) -> Settled:
        """Wait until nothing that the job started is left, then free its slot.

        With `kill` the job's own process is ended first. GPUs that a process still holds, whose
        memory does not come back or cannot be read, are put in quarantine.
        """
        held = self._jobs.get(job)
        if kill and held and held.worker and not self._works_on(held):
            _kill_worker(*held.worker)
        remains = await asyncio.to_thread(end_servers, job)
        used = held.slot.gpus if held else ()
        if remains.survivors:
            survived = f"{remains.survivors} processes survived SIGKILL"
            self._table.quarantine(dict.fromkeys(used, "; ".join(remains.unproven) or survived))
        elif held and held.slot.real_gpus:
            self._table.quarantine(await asyncio.to_thread(self._undrained, used))
        self._table.give_back(job)
        if held and self._jobs.pop(job, None):  # not if it was settled twice at once
            port_locks.release(held.locks)
        return Settled(
            survivors=remains.survivors,
            unproven=remains.unproven,
            notes=held.notes if held else 0,
            quarantined=dict(self._table.quarantined),
            archive=await asyncio.to_thread(pack, self._root / "jobs" / job) if collect else None,
        )

    def _works_on(self, held: _Job) -> bool:
        """True where the job's process has gone on to another job."""
        return any(
            other is not held and other.worker == held.worker for other in self._jobs.values()
        )

    def _undrained(self, used: tuple[str, ...]) -> dict[str, str]:
        """Wait for the memory of the GPUs to come back; says which did not, and how much."""
        end = time.monotonic() + _DRAIN_LIMIT_S
        while True:
            now_gb, unreadable = gpus.used_memory_gb(used)
            more_gb = {name: gb - self._idle_gb[name] for name, gb in now_gb.items()}
            held = {
                name: f"{gb:.1f} GB are still in use on it"
                for name, gb in more_gb.items()
                if gb > _DRAINED_GB
            }
            if not held or time.monotonic() > end:
                return unreadable | held
            time.sleep(_TICK_S)

    def _take_ports(self, blocks: int) -> tuple[tuple[PortLock, ...], tuple[int, ...]]:
        """Blocks of free ports that no other tuner on this host has: the locks on them, the ports.

        Raises HostError where there are too few, OSError where they cannot be locked.
        """
        locks: list[PortLock] = []
        taken: list[int] = []
        with ExitStack() as undo:
            undo.callback(port_locks.release, locks)
            for ports in slots.port_blocks(_ephemeral_range(), self._next_block, _reserved_ports()):
                self._next_block += 1
                lock = self._lock_block(ports)
                if lock is not None:
                    locks.append(lock)
                    taken += ports
                if len(locks) == blocks:
                    undo.pop_all()
                    return tuple(locks), tuple(taken)
        raise HostError(
            f"no {slots.PORTS_A_GPU} free ports in a row on {self._info.name}"
            f"{f', {blocks} times' if blocks > 1 else ''}",
            hint="look with `ss -ltn` for what listens on so many, and at "
            "net.ipv4.ip_local_reserved_ports",
        )

    def _lock_block(self, ports: tuple[int, ...]) -> PortLock | None:
        """The lock on a block, None where it or one of its ports is taken."""
        lock = port_locks.take(self._root, ports[0])
        if lock is not None and not all(map(_port_free, ports)):
            port_locks.release([lock])
            return None
        return lock


def _describe(found: tuple[gpus.FoundGpu, ...], declared: int) -> HostInfo:
    if found and len(found) < declared:
        raise HostError(
            f"{socket.gethostname()} has {counted(len(found), 'GPU')}, the study says {declared}",
            hint="correct hardware.gpus in the study",
        )
    names = tuple(gpu.uuid for gpu in found[:declared])
    return HostInfo(
        name=socket.gethostname(),
        gpus=names or tuple(str(index) for index in range(declared)),
        gpu_model=found[0].model if found else None,
        real_gpus=bool(found),
        cpu_model=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024 / 1e9,
    )


def _field(path: str, name: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _cores_of_nodes() -> dict[int, tuple[int, ...]]:
    folder = Path("/sys/devices/system/node")
    return {
        int(path.name.removeprefix("node")): slots.parse_list((path / "cpulist").read_text())
        for path in folder.glob("node[0-9]*")
    }


def _ephemeral_range() -> tuple[int, int]:
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(low), int(high)


def _reserved_ports() -> frozenset[int]:
    path = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
    return frozenset(slots.parse_list(path.read_text()))


def _port_free(port: int) -> bool:
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def _kill_worker(pid: int, started: int) -> None:
    process = processes.read(pid)
    if process and process.started == started:
        processes.send(process, signal.SIGKILL)


def _refuse_unproven(root: Path, swept: tuple[Swept, ...]) -> None:
    for server in swept:
        if server.unproven:
            raise HostError(
                f"a container of an earlier run (server {server.tag}) may still run: "
                f"{server.unproven}",
                hint="its runtime must answer before it can be removed: start its daemon; or, if "
                f"you know that it is gone, delete {records(root) / server.tag}.json",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a job's servers: survivors, and why containers among them may live."""

    survivors: int
    unproven: tuple[str, ...] = ()


def end_servers(job: str) -> Remains:
    """Tell all that the job started to end, kill what is left."""
    survivors = _end_processes(job)
    cleared = clear_job(job)
    return Remains(
        survivors=survivors + sum(each.survivors for each in cleared),
        unproven=tuple(f"server {each.tag}: {each.unproven}" for each in cleared if each.unproven),
    )


def _end_processes(job: str) -> int:
    def find() -> list[processes.Process]:
        return processes.tree(JOB_VARIABLE, job)

    for process in find():
        processes.send(process, signal.SIGTERM)
    end = time.monotonic() + _SUPERVISORS_S
    while time.monotonic() < end and find():
        time.sleep(_TICK_S)
    return processes.kill_all(find, _KILL_LIMIT_S)[1]
