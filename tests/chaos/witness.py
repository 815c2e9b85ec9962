"""Sees every server of a night: since when its owner is dead, and when the last of it was gone."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.hosts import processes
from tuner.hosts.processes import Process
from tuner.hosts.supervisor import TAG_VARIABLE

LOOK_S = 0.2
LEASE_S = 30.0
KEPT_S = 25.0
"""A lease is renewed every five seconds: an owner that is frozen for less loses nothing."""
GONE_S = 10.0
_PRESSURE = Path("/proc/pressure/cpu")


@dataclass(slots=True)
class Seen:
    """One server as its record and the process table show it."""

    tag: str
    owner: tuple[int, int]
    supervisor: tuple[int, int]
    leader: int
    began_s: float
    alive: list[int] = field(default_factory=list)
    gone_s: float | None = None
    frozen_s: float | None = None
    doomed_s: float | None = None
    """Since when it should go: its owner died, or was frozen for as long as the lease."""
    doomed_stall_s: float = 0.0
    both: bool = False
    """Owner and supervisor are dead: then it goes with the next run."""
    lost_early: bool = False
    """It went while its owner was alive but frozen, before the lease ended."""

    @property
    def trial(self) -> int:
        """The number of its launch."""
        return int(self.tag.split("-")[1])

    def took_s(self, now_s: float) -> float | None:
        """How long it outlived its owner, or the lease; None where it had not to go."""
        if self.doomed_s is None:
            return None
        return max(0.0, (self.gone_s if self.gone_s is not None else now_s) - self.doomed_s)


class Witness:
    """Looks at all servers of one run folder, again and again, in a thread of its own."""

    def __init__(self, run_root: Path) -> None:
        self._folder = run_root / "servers"
        self._known: dict[str, Seen] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def alive(self) -> list[Seen]:
        """The servers that are there, as of the last look."""
        with self._lock:
            return [seen for seen in self._known.values() if seen.alive]

    def all(self) -> list[Seen]:
        """Every server that was ever seen."""
        with self._lock:
            return list(self._known.values())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Look now."""
        table = processes.table()
        now_s = time.monotonic()
        marks = processes.marks(TAG_VARIABLE, table)
        with self._lock:
            self._learn(now_s)
            for seen in self._known.values():
                if seen.gone_s is None or any(mark == seen.tag for mark in marks.values()):
                    self._follow(seen, table, marks, now_s)

    def _learn(self, now_s: float) -> None:
        for path in self._folder.glob("*.json"):
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            seen = self._known.setdefault(
                record["tag"],
                Seen(
                    tag=record["tag"],
                    owner=tuple(record["owner"]),
                    supervisor=tuple(record["supervisor"]),
                    leader=record["server"],
                    began_s=now_s,
                ),
            )
            seen.leader = record["server"] or seen.leader

    def _follow(
        self, seen: Seen, table: dict[int, Process], marks: dict[int, str], now_s: float
    ) -> None:
        tagged = {pid for pid, mark in marks.items() if mark == seen.tag}
        family = tagged | processes.descendants(tagged, table)
        seen.alive = sorted(family - {seen.supervisor[0]})
        owner = table.get(seen.owner[0])
        owner = owner if owner and owner.started == seen.owner[1] else None
        supervised = processes.alive(*seen.supervisor)
        self._judge_owner(seen, owner, supervised, now_s)
        if seen.alive:
            seen.gone_s = None
        elif seen.gone_s is None:
            seen.gone_s = now_s
            seen.lost_early = seen.frozen_s is not None and now_s - seen.frozen_s < KEPT_S

    def _judge_owner(
        self, seen: Seen, owner: Process | None, supervised: bool, now_s: float
    ) -> None:
        if owner is None and not supervised and seen.alive:
            seen.both = True
        if owner is not None and owner.state == "T":
            seen.frozen_s = seen.frozen_s or now_s
        elif owner is not None:
            seen.frozen_s = None
        lapsed = seen.frozen_s is not None and now_s - seen.frozen_s > LEASE_S
        if seen.doomed_s is None and (owner is None or lapsed):
            seen.doomed_s = now_s
            seen.doomed_stall_s = stalled_s()


def stalled_s() -> float:
    """Seconds since boot in which something that could run had to wait for a core."""
    try:
        some = _PRESSURE.read_text().splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6


def late(servers: Sequence[Seen], now_s: float) -> list[str]:
    """Servers that outlived their owner or their lease by more than is allowed, in words.

    Not counted: the time in which this machine had no core to give, by the kernel's own count; and
    servers that lost owner and supervisor at once, which go with the next run.
    """
    found = []
    for seen in servers:
        took_s = seen.took_s(now_s)
        if took_s is None or seen.both:
            continue
        waited_s = min(took_s, stalled_s() - seen.doomed_stall_s) if took_s > GONE_S else 0.0
        if took_s - waited_s > GONE_S:
            found.append(f"{seen.tag} outlived its owner by {took_s:.1f} s, {waited_s:.1f} stalled")
    return found
