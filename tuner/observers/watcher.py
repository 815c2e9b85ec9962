"""A small process that looks at GPUs, host and engine once in a while and tells when it is asked.

Runs beside a load, at a lower priority than the load's, and imports little. Standard input: one
line of JSON (`Watched`), then a line of JSON for each question, `[number, since_s, until_s]` by
`time.perf_counter`, which all processes of a machine share. Standard output: a line of JSON,
`[0, [], []]` once it looks, then `[number, *Told]` for each question, so that who did not wait for
an answer can tell it from the next one. It ends with the end of its standard input.
"""

import json
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Any, NamedTuple

from tuner.hosts import processes
from tuner.hosts.gpu_use import GpuLook, GpuWatch, foreign, used_by
from tuner.hosts.kernel_counts import (
    Memory,
    Ticks,
    machine_ticks,
    memory,
    memory_stall_s,
    swapped_pages,
)
from tuner.hosts.supervisor import TAG_VARIABLE
from tuner.http.exposition import samples
from tuner.http.plain import NotThere, get_text

_KEPT_LOOKS = 10_000
_METRICS_TIMEOUT_S = 1.0
_NICER = 5
_NOT_HERE = "the server runs elsewhere: its machine not observed"
_NO_GPU_OF_ITS_OWN = "it computes on no GPU that can be told from here: power not observed"
_UNSEEN = "who computes on the GPUs cannot be seen from here: foreign processes not observed"


class Watched(NamedTuple):
    """What to look at, and how often.

    `gpus` are UUIDs, None those on which the own processes compute. The own processes are what
    carries one of the `tags`, the `roots`, and all that descends from either. `host` is False where
    the server runs on another machine. `metrics` are the addresses of its pages, all of which must
    answer, and `names` what is read there.
    """

    every_s: float
    gpus: list[str] | None
    tags: list[str]
    roots: list[int]
    host: bool
    metrics: list[str]
    names: list[str]
    key: str | None


class Look(NamedTuple):
    """What was seen at one moment; None where there was nothing to ask or no answer."""

    at_s: float
    gpus: list[GpuLook]
    foreign: list[int]
    ticks: Ticks | None
    memory: Memory | None
    swapped_pages: int
    stall_s: float | None
    metrics: dict[str, list[float]] | None


class Told(NamedTuple):
    """The looks of a window with those just before and after it, and what could not be seen."""

    looks: list[Look]
    unobserved: list[str]


def told(line: bytes) -> tuple[int, Told]:
    """What a watcher wrote, and to which question. Raises ValueError and TypeError for all that it
    would not write."""
    number, looks, unobserved = json.loads(line)
    return number, Told([_look_of(each) for each in looks], unobserved)


def _look_of(written: list[Any]) -> Look:
    at_s, gpus, strangers, ticks, room, swapped, stall_s, metrics = written
    return Look(
        at_s,
        [GpuLook(*each) for each in gpus],
        strangers,
        Ticks(*ticks) if ticks else None,
        Memory(*room) if room else None,
        swapped,
        stall_s,
        metrics,
    )


class Watcher:
    """Looks, and remembers what it saw."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._metrics = list(watched.metrics)
        self._looks: deque[Look] = deque(maxlen=_KEPT_LOOKS)
        self._unobserved: list[str] = []
        self._gpus = self._found_gpus() if watched.host else None
        self._say(_NOT_HERE if self._gpus is None else self._gpus.problem)

    def look(self) -> None:
        """See all that there is, once."""
        here = self._watched.host
        gpus, strangers = self._gpus_now()
        self._looks.append(
            Look(
                at_s=perf_counter(),
                gpus=gpus,
                foreign=strangers,
                ticks=machine_ticks() if here else None,
                memory=memory() if here else None,
                swapped_pages=swapped_pages() if here else 0,
                stall_s=memory_stall_s() if here else None,
                metrics=self._metrics_now(),
            )
        )

    def told(self, since_s: float, until_s: float) -> Told:
        """The looks of a window, one before it and one after it; a last one is taken now."""
        self.look()
        looks = list(self._looks)
        first = max((n for n, look in enumerate(looks) if look.at_s <= since_s), default=0)
        last = min((n for n, look in enumerate(looks) if look.at_s >= until_s), default=len(looks))
        return Told(looks[first : last + 1], self._unobserved)

    def _found_gpus(self) -> GpuWatch:
        asked = self._watched.gpus
        found = GpuWatch(used_by(self._own()) if asked is None else asked)
        if asked is None and not found.problem and not found.look():
            self._say(_NO_GPU_OF_ITS_OWN)
        return found

    def _gpus_now(self) -> tuple[list[GpuLook], list[int]]:
        if self._gpus is None or self._gpus.problem:
            return [], []
        computing = self._gpus.computing()
        if not computing:
            return self._gpus.look(), []
        if not any(map(processes.read, computing)):
            self._say(_UNSEEN)
            return self._gpus.look(), []
        return self._gpus.look(), sorted(foreign(computing, self._own()))

    def _own(self) -> set[int]:
        """The server's processes; one that was once seen to be stays it when its parent ends."""
        table = processes.table()
        own = {pid for pid in self._watched.roots if pid in table}
        marks = processes.marks(TAG_VARIABLE, table)
        own |= {pid for pid, mark in marks.items() if mark in self._watched.tags}
        return own | processes.descendants(own, table)

    def _metrics_now(self) -> dict[str, list[float]] | None:
        pages = []
        for url in self._metrics:
            try:
                page = get_text(url, self._watched.key, _METRICS_TIMEOUT_S)
            except NotThere as error:
                self._metrics = []
                self._say(f"no metrics ({error}): the engine's own counts not observed")
                return None
            if page is None:
                return None
            pages.append(samples(page, *self._watched.names))
        return _joined(pages) if pages else None

    def _say(self, problem: str) -> None:
        if problem and problem not in self._unobserved:
            self._unobserved.append(problem)


def _joined(pages: Iterable[dict[str, list[float]]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for page in pages:
        for name, values in page.items():
            found.setdefault(name, []).extend(values)
    return found


def main() -> None:
    """Look until the other side goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    os.nice(_NICER)
    watched = Watched(**json.loads(sys.stdin.readline()))
    watcher = Watcher(watched)
    watcher.look()
    _say(0, Told([], []))
    while _answered(watcher, watched.every_s):
        watcher.look()


def _answered(watcher: Watcher, wait_s: float) -> bool:
    """Answer what is asked within that time; False once nobody will ask any more."""
    until_s = perf_counter() + wait_s
    while select.select([sys.stdin], [], [], max(0.0, until_s - perf_counter()))[0]:
        line = sys.stdin.readline()
        if not line:
            return False
        number, since_s, until_s = json.loads(line)
        _say(number, watcher.told(since_s, until_s))
    return True


def _say(number: int, answer: Told) -> None:
    sys.stdout.write(json.dumps([number, *answer]) + "\n")
    sys.stdout.flush()
