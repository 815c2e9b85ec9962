"""What the kernel counts for a group of processes; standard library only."""

from pathlib import Path

from tuner.hosts.processes import PROC

SYSTEM = Path("/sys/fs/cgroup")


def oom_counter(pid: int) -> Path | None:
    """The file in which the kernel counts what it killed for want of memory in the group of this
    process; None where it has no group apart from the caller's."""
    group = _memory_group(str(pid))
    if group is None or group == _memory_group("self") or not group.is_file():
        return None
    return group


def oom_kills(counter: Path) -> int:
    """How many processes it says were killed; 0 once the group is gone."""
    try:
        lines = counter.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _memory_group(pid: str) -> Path | None:
    try:
        lines = (PROC / pid / "cgroup").read_text().splitlines()
    except OSError:
        return None
    # Each line is number:controllers:path; the one hierarchy of version 2 names no controllers.
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    if "memory" in paths:
        return SYSTEM / "memory" / paths["memory"].lstrip("/") / "memory.oom_control"
    if "" in paths:
        return SYSTEM / paths[""].lstrip("/") / "memory.events"
    return None
