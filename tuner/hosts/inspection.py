"""One look at this machine, as a value: what `checks` judge. Only leftovers are removed by it."""

import ctypes
import os
import pwd
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tuner.definitions.counted import counted
from tuner.errors import HostError
from tuner.frozen import Frozen
from tuner.hosts import processes
from tuner.hosts.cgroups import SYSTEM
from tuner.hosts.gpu_health import Gpus, gpus_now
from tuner.hosts.job import RAY_VARIABLE
from tuner.hosts.kernel_counts import machine_ticks, memory, swapped_pages, text
from tuner.hosts.leftovers import sweep
from tuner.hosts.ray_leftovers import RaySwept, sweep_ray
from tuner.hosts.slots import parse_list
from tuner.hosts.supervisor import TAG_VARIABLE

_SAMPLE_S = 0.5
_BUSY_CORES = 0.3
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_TIME_ERROR = 5
"""What adjtimex(2) returns of a clock that nothing keeps right."""
_TIMEX_BYTES = 512


class Disk(Frozen):
    """A file system by a folder on it; `files_left` where it counts files, `problem` where the
    folder cannot be used."""

    path: str
    free_gb: float
    total_gb: float
    files_left: int | None
    writable: bool
    problem: str = ""


class CpuUser(Frozen):
    """A process, whose it is and how many cores it used during the look; `ours` says that a run of
    this program started it, or is it."""

    pid: int
    command: str
    cores: float
    user: str = ""
    ours: bool = False


class Inspected(Frozen):
    """This machine at one moment.

    Limits of open files are None where there is none. `memory_gb` and `available_gb` are those of
    the container where that has less than its host, `quota_cores` is its share of the cores.
    `swapped_pages` went in or out during the look, `busy_cores` were used by anybody.
    `synchronised` is None where the kernel does not say. `swept` are sentences about what was left
    of earlier runs and is gone now, `unswept` about what could not be removed.
    """

    gpus: Gpus
    open_files_soft: int | None
    open_files_hard: int | None
    shm: Disk | None
    tmp: Disk
    study: Disk | None
    listening: list[int]
    ephemeral: tuple[int, int]
    reserved: list[int]
    memory_gb: float
    available_gb: float
    swap_gb: float
    swap_used_gb: float
    swapped_pages: int
    cores: int
    quota_cores: float | None
    load_1min: float
    busy_cores: float
    cpu_users: list[CpuUser]
    now: datetime
    synchronised: bool | None
    swept: list[str]
    unswept: list[str]


def inspect_host(study: Path | None = None) -> Inspected:
    """Look at this machine for about a second, after what dead runs left was removed."""
    swept, unswept = _sweep()
    load = _Load()
    time.sleep(_SAMPLE_S)
    busy_cores, cpu_users, swapped_pages = load.since()
    room = memory()
    soft, hard = (_limit(value) for value in resource.getrlimit(resource.RLIMIT_NOFILE))
    return Inspected(
        gpus=gpus_now(),
        open_files_soft=soft,
        open_files_hard=hard,
        shm=_disk(Path(processes.SHARED_MEMORY)),
        tmp=_disk(Path(tempfile.gettempdir())) or _no_disk(tempfile.gettempdir()),
        study=_disk(study) if study else None,
        listening=sorted(_listening()),
        ephemeral=_pair("/proc/sys/net/ipv4/ip_local_port_range", (32768, 60999)),
        reserved=list(parse_list(text("/proc/sys/net/ipv4/ip_local_reserved_ports"))),
        memory_gb=room.total_gb,
        available_gb=room.available_gb,
        swap_gb=room.swap_gb,
        swap_used_gb=room.swap_gb - room.swap_free_gb,
        swapped_pages=swapped_pages,
        cores=len(os.sched_getaffinity(0)),
        quota_cores=_quota_cores(),
        load_1min=os.getloadavg()[0],
        busy_cores=busy_cores,
        cpu_users=cpu_users,
        now=datetime.now(UTC),
        synchronised=_synchronised(),
        swept=swept,
        unswept=unswept,
    )


def _sweep() -> tuple[list[str], list[str]]:
    """What dead runs left: removed, and what could not be."""
    removed: list[str] = []
    left: list[str] = []
    try:
        servers, ray = sweep(), sweep_ray()
    except HostError as error:
        return [], [error.message]
    for each in servers:
        segments = counted(len(each.segments), "file") + " in /dev/shm" if each.segments else ""
        killed = _processes(each.killed)
        removed.append(f"server {each.tag}: {', '.join(filter(None, (killed, segments)))}")
        if each.survivors or each.unproven:
            why = each.unproven or "they hang inside a driver"
            left.append(f"server {each.tag}: {_live_on(each.survivors)} ({why})")
    if ray.killed or ray.folders:
        removed.append(f"Ray: {_ray_words(ray)}")
    if ray.survivors:
        left.append(f"Ray: {_live_on(ray.survivors)}")
    return removed, left


_NAMED = 12
"""Of a host's Ray, that has a worker for every core, so many processes are named."""


def _ray_words(ray: RaySwept) -> str:
    """Which processes and folders they were, as a stranger to them would look them up."""
    said = []
    if ray.killed:
        pids = ", ".join(map(str, ray.killed[:_NAMED]))
        more = f" and {len(ray.killed) - _NAMED} more" if len(ray.killed) > _NAMED else ""
        said.append(f"{_processes(len(ray.killed))} (pid {pids}{more})")
    if ray.folders:
        said.append(f"{counted(len(ray.folders), 'folder')} ({', '.join(ray.folders)})")
    return ", ".join(said)


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _live_on(count: int) -> str:
    return f"{_processes(count)} {'lives' if count == 1 else 'live'} on"


class _Load:
    """Two looks at who uses the cores, and at what is swapped."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._total, self._idle = machine_ticks()
        self._ticks = dict(_process_ticks())
        self._pages = swapped_pages()

    def since(self) -> tuple[float, list[CpuUser], int]:
        """(cores in use, the processes that use them, pages swapped) since it was made."""
        took_s = time.monotonic() - self._began_s
        total, idle = machine_ticks()
        used = (total - self._total) - (idle - self._idle)
        share = used / (total - self._total) if total > self._total else 0.0
        cores = os.cpu_count() or 1
        return share * cores, self._users(took_s), swapped_pages() - self._pages

    def _users(self, took_s: float) -> list[CpuUser]:
        own = {os.getpid(), os.getppid()}
        used = {
            pid: (ticks - self._ticks[pid]) / _TICKS_A_SECOND / took_s
            for pid, ticks in _process_ticks()
            if pid in self._ticks and pid not in own
        }
        busy = sorted(used.items(), key=lambda pair: -pair[1])
        return [
            CpuUser(
                pid=pid,
                command=processes.command_line(pid)[:120],
                cores=round(cores, 2),
                user=_owner(pid),
                ours=_is_ours(pid),
            )
            for pid, cores in busy
            if cores >= _BUSY_CORES
        ]


_PARENTS = 64
"""No run of this program stands deeper above what it started."""


def _is_ours(pid: int) -> bool:
    """Whether a process is marked by a run of this program, or one of it stands above."""
    for _ in range(_PARENTS):
        process = processes.read(pid)
        if process is None or pid <= 1:
            return False
        marked = processes.marks(TAG_VARIABLE, [pid]) or processes.marks(RAY_VARIABLE, [pid])
        if marked or _OWN.search(processes.command_line(pid)):
            return True
        pid = process.parent
    return False


_OWN = re.compile(r"(^|\s)(\S*/)?tuner (run|measure|doctor|serve)\b|-m tuner\b")


def _owner(pid: int) -> str:
    try:
        user = (processes.PROC / str(pid)).stat().st_uid
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
    except OSError:
        return ""


def _process_ticks() -> Iterator[tuple[int, int]]:
    for path in processes.PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The command name stands in parentheses and may itself hold spaces and parentheses.
            fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
            yield int(path.name), int(fields[11]) + int(fields[12])


def _quota_cores() -> float | None:
    """How many cores' time this container may use, None where it has no such limit."""
    quota, _, period = text(SYSTEM / "cpu.max").strip().partition(" ")
    if not quota:
        quota = text(SYSTEM / "cpu" / "cpu.cfs_quota_us").strip()
        period = text(SYSTEM / "cpu" / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _disk(path: Path) -> Disk | None:
    """The file system of a folder, None where there is no such folder."""
    try:
        size, count = shutil.disk_usage(path), os.statvfs(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _no_disk(str(path), error.strerror or str(error))
    return Disk(
        path=str(path),
        free_gb=size.free / 1e9,
        total_gb=size.total / 1e9,
        files_left=count.f_favail if count.f_files else None,
        writable=os.access(path, os.W_OK | os.X_OK),
    )


def _no_disk(path: str, why: str = "it does not exist") -> Disk:
    return Disk(path=path, free_gb=0, total_gb=0, files_left=None, writable=False, problem=why)


def _listening() -> Iterator[int]:
    """Every TCP port that somebody listens on, on whatever address."""
    seen: set[int] = set()
    for family in ("tcp", "tcp6"):
        for fields in map(str.split, text(f"/proc/net/{family}").splitlines()[1:]):
            if fields[3] == processes.LISTEN:
                seen.add(int(fields[1].rpartition(":")[2], 16))
    yield from seen


def _synchronised() -> bool | None:
    """What the kernel says of its own clock."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _pair(path: str, default: tuple[int, int]) -> tuple[int, int]:
    found = text(path).split()
    return (int(found[0]), int(found[1])) if len(found) == 2 else default
