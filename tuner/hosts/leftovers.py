"""What servers leave behind whose owner is dead, found by their records and removed."""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import HostError
from tuner.hosts import keeper, processes
from tuner.hosts.belongings import remove_scratch
from tuner.hosts.containers import Container
from tuner.hosts.supervisor import KILL_LIMIT_S, TAG_VARIABLE

ORPHAN_GRACE_S = 3.0
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What was found of a server whose owner is dead, and removed.

    `unproven` says why its container may still run, empty where it is gone or there was none.
    """

    tag: str
    killed: int
    survivors: int
    segments: tuple[str, ...]
    unproven: str = ""


def default_run_root() -> Path:
    """Where this user's running servers are written down, for this user alone.

    Raises HostError where the folder belongs to somebody else.
    """
    root = Path(tempfile.gettempdir()) / f"serving-tuner-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise HostError(
            f"{root} belongs to another user",
            hint="remove it, or point TMPDIR to a folder of your own",
        )
    return root


def sweep(run_root: Path | None = None) -> tuple[Swept, ...]:
    """Remove what servers left behind whose owner is dead; everything else is left alone.

    A process belongs to a server if it carries the server's mark or descends from one that does;
    a container belongs to the one in whose record it stands.
    """
    swept = []
    for path, record in _written(run_root):
        if not processes.alive(*record["owner"]):
            _wait_for_supervisor(*record["supervisor"])
            if path.exists():
                swept.append(clear(record["tag"], path))
    return tuple(swept)


def clear_job(job: str, run_root: Path | None = None) -> tuple[Swept, ...]:
    """Remove the containers of a job whose processes are all dead."""
    return tuple(
        clear(record["tag"], path)
        for path, record in _written(run_root)
        if record.get("job") == job and record.get("container")
    )


def _written(run_root: Path | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(records(run_root or default_run_root()).glob("*.json")):
        record = _read_record(path)
        if record:
            yield path, record


def clear(tag: str, path: Path, container: Container | None = None) -> Swept:
    """Kill and remove all of a server whose supervisor is dead; its record says what it was, as
    far as it came to be written."""
    record = _read_record(path)
    container = container or Container.restored(record.get("container"))
    inside = container.processes() if container else []

    def find() -> list[processes.Process]:
        return processes.tree(TAG_VARIABLE, tag)

    segments = processes.shared_memory(process.pid for process in find())
    segments.update(record.get("segments", ()))
    killed, survivors = processes.kill_all(find, KILL_LIMIT_S)
    more, left, unproven = (
        keeper.remove(container, inside, KILL_LIMIT_S) if container else (0, 0, "")
    )
    removed = processes.remove_shared_memory(segments)
    remove_scratch(record.get("scratch"))
    if not survivors and not left:
        path.unlink(missing_ok=True)
    return Swept(
        tag=tag,
        killed=len(killed) + more,
        survivors=survivors + left,
        segments=tuple(removed),
        unproven=unproven,
    )


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record


def _wait_for_supervisor(pid: int, started: int) -> None:
    """A supervisor whose owner died is at work already, unless it is frozen."""
    end = time.monotonic() + ORPHAN_GRACE_S + _MARGIN_S
    while time.monotonic() < end and processes.alive(pid, started):
        process = processes.read(pid)
        if process is None or process.state == "T":
            return
        time.sleep(processes.TICK_S)


def records(root: Path) -> Path:
    """The folder in which running servers are written down, one file each."""
    folder = root / "servers"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
