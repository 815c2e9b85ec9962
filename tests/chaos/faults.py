"""What befalls a night: a target, an action, and how long it lasts."""

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.night import Kind, Night
from tests.chaos.witness import Seen
from tuner.hosts import processes
from tuner.hosts.supervisor import TAG_VARIABLE

DELAY_S: Mapping[Kind, float] = {"bare": 2.5, "contained": 2.5, "vllm": 60.0}
"""A launch is struck at a moment up to so long after it was seen: rehearsals are short."""
SHORT_S = (0.5, 3.0)
DISK_S = (2.0, 8.0)
MEMORY_S = 10.0
LONG_S = 42.0
"""Longer than a lease and what it takes to end a server after it."""
_MEMORY = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    `hold_s` is how long a process is frozen, a disk full, or at most a process without memory.
    """

    target: str
    action: str
    delay_s: float = 0.0
    hold_s: float = 0.0

    @property
    def words(self) -> str:
        """As the table has it."""
        return f"{self.action} {self.target}"

    @property
    def may_end_run(self) -> bool:
        """Whether the tuner itself may not go on."""
        lethal = self.action in ("SIGKILL", "SIGTERM", "memory") and "tuner" in self.target
        return lethal or self.action == "disk full" or self.target == "daemon"

    @property
    def long(self) -> bool:
        """Whether it outlasts a lease."""
        return self.action == "SIGSTOP" and self.hold_s >= LONG_S

    @property
    def codes(self) -> Sequence[int]:
        """How a run that it ends may end: killed, interrupted, or stopped by the host."""
        return {"SIGKILL": (-9, 4), "SIGTERM": (130,), "memory": (-9,)}.get(self.action, (1, 4))

    @property
    def frees(self) -> bool:
        """Whether the server must go."""
        lethal = self.action in ("SIGKILL", "SIGTERM")
        return lethal and self.target not in ("grandchild", "agent", "gcs", "daemon")


BARE = {
    "tuner": ("SIGKILL", "SIGTERM", "SIGSTOP", "memory"),
    "agent": ("SIGKILL", "SIGTERM", "SIGSTOP"),
    "owner": ("SIGKILL", "SIGTERM", "SIGSTOP", "memory"),
    "raylet": ("SIGKILL", "SIGTERM", "SIGSTOP"),
    "gcs": ("SIGKILL", "SIGSTOP"),
    "supervisor": ("SIGKILL", "SIGTERM", "SIGSTOP"),
    "server": ("SIGKILL", "SIGTERM", "SIGSTOP", "memory"),
    "grandchild": ("SIGKILL", "SIGTERM", "SIGSTOP"),
    "owner and supervisor": ("SIGKILL",),
    "tuner, owner and supervisor": ("SIGKILL",),
    "study's disk": ("disk full",),
    "temporary disk": ("disk full",),
}
CONTAINED = {
    "tuner": ("SIGKILL",),
    "owner": ("SIGKILL",),
    "supervisor": ("SIGKILL",),
    "client": ("SIGKILL", "SIGTERM"),
    "container": ("SIGKILL", "SIGTERM", "SIGSTOP"),
    "daemon": ("SIGKILL",),
    "tuner, owner and supervisor": ("SIGKILL",),
}
VLLM = {
    "tuner": ("SIGKILL",),
    "owner": ("SIGKILL", "SIGSTOP"),
    "raylet": ("SIGKILL",),
    "supervisor": ("SIGKILL",),
    "server": ("SIGKILL", "memory"),
    "engine core": ("SIGKILL",),
    "tuner, owner and supervisor": ("SIGKILL",),
}
CELLS: Mapping[Kind, Mapping[str, Sequence[str]]] = {
    "bare": BARE,
    "contained": CONTAINED,
    "vllm": VLLM,
}
LONG = (("owner", "SIGSTOP"), ("tuner", "SIGSTOP"), ("raylet", "SIGSTOP"), ("agent", "SIGSTOP"))


def deck(kind: Kind, rng: random.Random) -> list[Fault]:
    """Every cell once, in random order, each at a random moment of a launch."""
    pairs = [(target, action) for target, actions in CELLS[kind].items() for action in actions]
    rng.shuffle(pairs)
    return [drawn(target, action, rng, DELAY_S[kind]) for target, action in pairs]


def drawn(target: str, action: str, rng: random.Random, longest_s: float) -> Fault:
    """This fault at a random moment."""
    held = {"SIGSTOP": SHORT_S, "disk full": DISK_S, "memory": (MEMORY_S, MEMORY_S)}
    hold_s = rng.uniform(*held[action]) if action in held else 0.0
    return Fault(target=target, action=action, delay_s=rng.uniform(0.0, longest_s), hold_s=hold_s)


def long_freezes(rng: random.Random) -> list[Fault]:
    """Freezes that outlast a lease."""
    return [
        Fault(target=target, action=action, delay_s=rng.uniform(0.0, 1.5), hold_s=LONG_S)
        for target, action in LONG
    ]


class Gone(Exception):
    """The target is not there (any more)."""


def pids_of(target: str, night: Night, server: Seen) -> list[int]:
    """The processes that a target is, of a launch that is under way. Raises Gone."""
    names = target.replace(" and ", ", ").split(", ")
    found = [pid for name in names for pid in _find(name, night, server)]
    if not found:
        raise Gone(target)
    return found


def _find(name: str, night: Night, server: Seen) -> list[int]:
    if night.run is None:
        raise Gone("tuner")
    by_record = {
        "tuner": night.run.pid,
        "owner": server.owner[0],
        "supervisor": server.supervisor[0],
        "client": server.leader,
    }
    if name in by_record:
        return [by_record[name]] if processes.read(by_record[name]) else []
    if name == "daemon" and night.runtime:
        return [int((night.runtime.state / "daemon.pid").read_text())]
    if name == "container" and night.runtime:
        running: list[int] = night.runtime.running()
        return running[:1]
    if name == "server":
        return [server.leader] if processes.read(server.leader) else []
    table = processes.table()
    if name == "engine core":
        return sorted(processes.descendants([server.leader], table))[:1]
    if name == "grandchild":
        marks = processes.marks(TAG_VARIABLE, table)
        return [p for p, mark in marks.items() if mark == server.tag and _is(p, "sglang::sched")]
    programs = {"agent": "ray::Agent", "raylet": "raylet", "gcs": "gcs_server"}
    of_ray = processes.descendants([night.run.pid], table)
    return [pid for pid in of_ray if _is(pid, programs[name])]


def _is(pid: int, program: str) -> bool:
    first = processes.command_line(pid).partition(" ")[0]
    return Path(first).name.startswith(program) or first.startswith(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inflicted:
    """A fault that lasts: until when, at most, and what ends it."""

    pids: Sequence[int] = ()
    end: Callable[[], None]

    def over(self) -> bool:
        """Whether those whom it struck are all dead."""
        return bool(self.pids) and not any(map(processes.read, self.pids))


def inflict(fault: Fault, night: Night, server: Seen) -> Inflicted:
    """Do it. Raises Gone."""
    if fault.action == "disk full":
        return Inflicted(end=_full(fault.target, night, server))
    pids = pids_of(fault.target, night, server)
    if fault.action == "memory":
        return Inflicted(pids=pids, end=_starve(pids[0]))
    number = signal.Signals[fault.action]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    if fault.target == "daemon" and night.runtime:
        return Inflicted(pids=pids, end=night.runtime.revive)
    return Inflicted(pids=pids, end=lambda: _continue(pids))


def _continue(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _full(target: str, night: Night, server: Seen) -> Callable[[], None]:
    """A disk without room; where it could not be made small, the processes that write there may
    write no longer."""
    if night.disks:
        return _fill(night.study if target == "study's disk" else night.tmp)
    writers = "tuner, owner, server" if target == "study's disk" else "owner, supervisor"
    pids = pids_of(writers, night, server)
    _limit_files(pids, 1)
    return lambda: _limit_files(pids, resource.RLIM_INFINITY)


def _limit_files(pids: Sequence[int], size: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def _fill(folder: Path) -> Callable[[], None]:
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return lambda: filler.unlink(missing_ok=True)


def _starve(pid: int) -> Callable[[], None]:
    """No further memory: from the kernel where it keeps count for groups, else from malloc."""
    with suppress(OSError):
        group = _own_group() / f"chaos-{pid}"
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("65536")
        (group / "cgroup.procs").write_text(str(pid))
        return lambda: _ungroup(group)
    with suppress(ProcessLookupError):
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
    return lambda: None


def _own_group() -> Path:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return _MEMORY / next(line.split(":")[2] for line in lines if ":memory:" in line).lstrip("/")


def _ungroup(group: Path) -> None:
    for _ in range(50):
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
