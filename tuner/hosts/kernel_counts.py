"""What the kernel counts for the whole machine: core time, memory, swap, waiting for memory.

Standard library only: it is read beside a load, in a process that should cost next to nothing.
"""

import os
from pathlib import Path
from typing import NamedTuple

from tuner.hosts.cgroups import SYSTEM

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NO_LIMIT_BYTES = 1 << 60


class Ticks(NamedTuple):
    """Core time of the whole machine since its start, and how much of it nobody used."""

    total: int
    idle: int


class Memory(NamedTuple):
    """In GB; a container's own limit where it has less than its host."""

    total_gb: float
    available_gb: float
    swap_gb: float
    swap_free_gb: float


def machine_ticks() -> Ticks:
    """Core time of all cores together, waiting for disks counted as idle."""
    fields = [int(field) for field in text("/proc/stat").split("\n", 1)[0].split()[1:9]]
    return Ticks(sum(fields), sum(fields[3:5]))


def swapped_pages() -> int:
    """Pages that went to or came from swap since the machine's start."""
    lines = (line.split() for line in text("/proc/vmstat").splitlines())
    return sum(int(count) for name, count in lines if name in ("pswpin", "pswpout"))


def memory_stall_s() -> float | None:
    """How long some task waited for memory since the machine's start, None where the kernel does
    not count it (PSI, Documentation/accounting/psi.rst)."""
    for line in text("/proc/pressure/memory").splitlines():
        kind, *words = line.split()
        if kind == "some":
            return next(int(word[6:]) / 1e6 for word in words if word.startswith("total="))
    return None


def memory() -> Memory:
    """What there is and what is left."""
    found = dict.fromkeys(("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"), 0.0)
    for line in text("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024 / 1e9
    limit_gb, used_gb = _container_memory_gb()
    if limit_gb is not None and limit_gb < found["MemTotal"]:
        found["MemTotal"] = limit_gb
        found["MemAvailable"] = min(found["MemAvailable"], max(0.0, limit_gb - used_gb))
    return Memory(*found.values())


def text(path: str | Path) -> str:
    """What a file of the kernel's says; nothing where this machine has no such file."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _container_memory_gb() -> tuple[float | None, float]:
    """(limit, in use without what the kernel would drop) of this container, None without one."""
    for limit, used, dropped in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        found = text(SYSTEM / limit).strip()
        if found.isdecimal() and int(found) < _NO_LIMIT_BYTES:
            stat = (SYSTEM / limit).parent / "memory.stat"
            words = dict(line.split() for line in text(stat).splitlines())
            in_use = int(text(SYSTEM / used) or 0) - int(words.get(dropped, 0))
            return int(found) / 1e9, in_use / 1e9
    return None, 0.0
