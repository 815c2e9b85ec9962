"""How the study loop gets work done elsewhere, without knowing where.

`tuner.hosts.cluster` is the executor over Ray; tests use one that replays records.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What one job has of its host, for itself alone until it ends.

    `gpus` are UUIDs (`GPU-...`), or the numbers "0", "1", ... where GPUs are only declared;
    `real_gpus` says which. The first port is the server's, the rest are for what it opens itself.
    `gpu_cores` are the server cores near each GPU.
    """

    host: str
    gpus: tuple[str, ...]
    real_gpus: bool
    server_cores: tuple[int, ...]
    client_cores: tuple[int, ...]
    ports: tuple[int, ...]
    gpu_cores: tuple[tuple[int, ...], ...] = ()

    def split(self, servers: int) -> tuple["Slot", ...]:
        """One slot for each of so many servers that share this one.

        Neighbouring GPUs stay together, with the cores near them; ports are dealt out, and what is
        left of either after equal shares is nobody's. The load's own cores are common to all.
        """
        if servers == 1:
            return (self,)
        return tuple(self._share(place, servers) for place in range(servers))

    def _share(self, place: int, servers: int) -> "Slot":
        gpus, ports = len(self.gpus) // servers, len(self.ports) // servers
        own = slice(place * gpus, (place + 1) * gpus)
        near = {core for cores in self.gpu_cores[own] for core in cores}
        return replace(
            self,
            gpus=self.gpus[own],
            server_cores=tuple(sorted(near)) or self.server_cores,
            ports=self.ports[place * ports : (place + 1) * ports],
            gpu_cores=self.gpu_cores[own],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    """One host as its agent found it."""

    name: str
    gpus: tuple[str, ...]
    gpu_model: str | None
    real_gpus: bool
    cpu_model: str
    cores: int
    memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNote:
    """Something a running job said on its way."""

    job: int
    note: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """A job returned."""

    job: int
    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLost:
    """A job ended without a result: cancelled, its worker or its host died, or it has a bug.

    `bug` holds the traceback where the job's own code raised. `again` is True where its process
    or its host was lost or its port was taken, so that the same job may well succeed.
    """

    job: int
    reason: str
    bug: str | None = None
    again: bool = True


Event = JobNote | JobDone | JobLost
Note = Callable[[Any], None]
Function = Callable[[Any, Slot, Path, Note], Any]
"""`function(payload, slot, folder, note)`: runs in a process of its own on the slot's host,
pinned to the client cores; picklable, and so are payload, notes and result."""


class Executor(Protocol):
    """Runs jobs, each in a slot of its own."""

    @property
    def hosts(self) -> tuple[HostInfo, ...]:
        """The hosts found, in a stable order."""
        ...

    def submit(self, function: Function, payload: Any, *, gpus: int, folder: Path) -> int | None:
        """Start a job and return its number, or None while no slot of that size is free.

        None means that a later call may succeed: every host with that many GPUs is busy, or a
        host was lost and may come back. `folder` is where the job leaves its files; from another
        host they are brought back. Raises HostError where no host has that many GPUs, those in
        quarantine left out, and says why they are.
        """
        ...

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits up to `timeout_s` for something to happen."""
        ...

    def cancel(self, job: int) -> None:
        """End a job; its servers are gone when its JobLost comes."""
        ...

    def close(self) -> None:
        """Cancel all jobs, prove their servers gone, let go of the hosts."""
        ...
