"""What /proc knows: who descends from whom, who carries a mark, who listens, who maps what.

Standard library only: the supervisor imports it in an interpreter without site-packages.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
SHARED_MEMORY = "/dev/shm/"  # noqa: S108
LISTEN = "0A"
TICK_S = 0.05
_LOOKS = 2
_TICKS_S = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One process; pid and `started` (clock ticks since boot) together are never used twice."""

    pid: int
    parent: int
    state: str
    started: int


def read(pid: int) -> Process | None:
    """The process as it is now, None where there is none (a zombie holds nothing: none)."""
    text = _read_bytes(pid, "stat")
    if not text:
        return None
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    if fields[0] in b"ZX" and not _threads_live(pid):
        return None
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def table() -> dict[int, Process]:
    """Every process that this one can see."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return {process.pid: process for process in found if process}


def named(text: str) -> tuple[int, int] | None:
    """The process that a mark such as `12-3456` names, by its number and when it began."""
    pid, _, started = text.partition("-")
    return (int(pid), int(started)) if pid.isdecimal() and started.isdecimal() else None


def alive(pid: int, started: int) -> bool:
    """True while this very process runs, not merely one that was given its number."""
    process = read(pid)
    return process is not None and process.started == started


def descendants(roots: Iterable[int], processes: Mapping[int, Process]) -> set[int]:
    """Children, grandchildren and so on of the roots; the roots themselves are left out."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting.extend(new)
    return found


def marks(name: str, pids: Iterable[int]) -> dict[int, str]:
    """What this environment variable was when each process was started; left out where unset."""
    prefix = f"{name}=".encode()
    found: dict[int, str] = {}
    for pid in pids:
        for entry in _read_bytes(pid, "environ").split(b"\0"):
            if entry.startswith(prefix):
                found[pid] = entry.removeprefix(prefix).decode(errors="replace")
    return found


def tree(name: str, value: str, roots: Iterable[int] = ()) -> list[Process]:
    """All that descends from the roots or carries the mark, and what descends from those.

    The roots themselves and the caller are left out.
    """
    processes = table()
    carriers = {pid for pid, mark in marks(name, processes).items() if mark == value}
    found = carriers | descendants(roots, processes)
    found |= descendants(found, processes)
    return [processes[pid] for pid in found - {os.getpid(), *roots}]


def send(process: Process, signal_number: int) -> bool:
    """Signal this very process; False where it is gone or not ours."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not alive(process.pid, process.started):
            return False
        signal.pidfd_send_signal(handle, signal_number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def kill_all(find: Callable[[], list[Process]], limit_s: float) -> tuple[set[Process], int]:
    """SIGKILL what `find` finds until it finds nothing: (killed, survivors at the limit).

    Repeated because a process may fork between being found and being killed; one that forks and
    ends while all are being listed hides its child from a single look, so that two are taken.
    """
    killed: set[Process] = set()
    end = time.monotonic() + limit_s
    empty = 0
    while empty < _LOOKS:
        found = find()
        killed.update(process for process in found if send(process, signal.SIGKILL))
        empty = 0 if found else empty + 1
        if found and time.monotonic() > end:
            return killed, len(found)
        if empty < _LOOKS:
            time.sleep(TICK_S)
    return killed, 0


def command_line(pid: int) -> str:
    """The command line, or the bare name of a kernel thread; "?" where it cannot be read."""
    words = _read_bytes(pid, "cmdline").split(b"\0")
    text = b" ".join(word for word in words if word) or _read_bytes(pid, "comm").strip()
    return text.decode(errors="replace") or "?"


def listening_sockets(port: int) -> set[str]:
    """Inode numbers of the TCP sockets that listen on this port, on any address."""
    inodes: set[str] = set()
    for family in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / family).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def holders(inodes: set[str], pids: Iterable[int]) -> dict[str, int]:
    """Which of the processes holds each socket open; sockets that none holds are left out."""
    found: dict[str, int] = {}
    for pid in pids:
        for target in _open_files(pid):
            inode = target.removeprefix("socket:[").removesuffix("]")
            if inode in inodes:
                found[inode] = pid
    return found


def shared_memory(pids: Iterable[int]) -> set[str]:
    """Files of /dev/shm that any of the processes has open or mapped.

    A mapping is known by its inode: a semaphore is mapped under a name that it had before its own.
    """
    names = _segments_by_inode()
    found: set[str] = set()
    for pid in pids:
        found.update(name for name in _open_files(pid) if name.startswith(SHARED_MEMORY))
        for line in _read_bytes(pid, "maps").decode(errors="replace").splitlines():
            if SHARED_MEMORY in line:
                found.add(names.get(int(line.split(maxsplit=5)[4]), ""))
    return {name for name in found if name and not name.endswith(" (deleted)")}


def _segments_by_inode() -> dict[int, str]:
    with suppress(OSError), os.scandir(SHARED_MEMORY) as entries:
        return {entry.inode(): entry.path for entry in entries}
    return {}


def remove_shared_memory(names: Iterable[str]) -> list[str]:
    """Unlink those segments that no process holds any more; returns what was removed."""
    candidates = {name for name in names if Path(name).exists()}
    if not candidates:
        return []
    removed = []
    for name in sorted(candidates - shared_memory(table())):
        try:
            Path(name).unlink()
        except OSError:
            continue
        removed.append(name)
    return removed


def work(pids: Iterable[int]) -> tuple[float, float]:
    """Seconds of processor and bytes read since they began, of all these processes together; what
    a process took that has ended counts for its parent. What cannot be read counts nothing."""
    cpu_s = read_bytes = 0.0
    for pid in pids:
        fields = _read_bytes(pid, "stat").rpartition(b")")[2].split()
        cpu_s += sum(int(ticks) for ticks in fields[11:15]) / _TICKS_S
        for line in _read_bytes(pid, "io").splitlines():
            name, _, value = line.partition(b": ")
            if name in (b"rchar", b"read_bytes"):
                read_bytes += int(value)
    return cpu_s, read_bytes


def _threads_live(pid: int) -> bool:
    # A process whose main thread has ended reads as a zombie while its other threads run on.
    try:
        return len(list((PROC / str(pid) / "task").iterdir())) > 1
    except OSError:
        return False


def _open_files(pid: int) -> list[str]:
    targets = []
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                targets.append(str(entry.readlink()))
    return targets


def _read_bytes(pid: int, name: str) -> bytes:
    # Plain calls: a stop reads some thousands of these files on a large host, many times over.
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    text = b""
    try:
        while piece := os.read(file, 65536):
            text += piece
    except OSError:
        return b""
    finally:
        os.close(file)
    return text
