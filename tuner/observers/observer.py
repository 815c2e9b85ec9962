"""What is seen beside a load: a `watcher` process, asked after each window."""

import asyncio
import json
import logging
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import tuner
from tuner.engines.metric_names import MetricNames
from tuner.measuring.machine import MachineUse
from tuner.measuring.measurement import EngineLoad, RungMeasurement
from tuner.observers.summing import engine_load, machine_use
from tuner.observers.watcher import Told, Watched, told

logger = logging.getLogger(__name__)

EVERY_S = 1.0
LEAST_S = 0.1
"""Between two looks of a rehearsal, whose windows may be shorter than a second."""
_ANSWER_S = 10.0
_END_S = 5.0
"""How long it may take to end of itself, and then of SIGKILL."""
_BOOT = "import sys; sys.path.append(sys.argv[1]); from tuner.observers.watcher import main; main()"
_GONE = "the observer does not answer: nothing observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom to observe.

    `gpus` are the UUIDs of its GPUs, None where those count on which it computes. Its processes
    carry one of the `tags` or descend from the `roots`. `here` is False where it runs on another
    machine. `urls` are its servers', whose metrics have `names`; `key` is their API key.
    """

    gpus: Sequence[str] | None = ()
    tags: Sequence[str] = ()
    roots: Sequence[int] = ()
    here: bool = True
    urls: Sequence[str] = ()
    names: MetricNames | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a window; `load` is None where the engine did not say."""

    machine: MachineUse
    load: EngineLoad | None


def beside(seen: Seen | None, rung: RungMeasurement) -> dict[str, Any]:
    """What was seen as fields of the rung that was measured meanwhile."""
    if seen is None:
        return {}
    tokens = rung.output_tok_s * rung.window_s / rung.factor  # of what was seen, no more
    machine = seen.machine.per_token(tokens)
    return {"machine": machine, "engine_load": seen.load}


class Observer:
    """Observes from its `with` to the end of it, whatever fails: what it cannot see is missing."""

    def __init__(self, subject: Subject, *, every_s: float = EVERY_S) -> None:
        self._names = subject.names
        self._watched = _watched(subject, max(LEAST_S, every_s))
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._ready = False
        self._asked = 0

    def __enter__(self) -> Self:
        with suppress(OSError):
            folder = str(Path(tuner.__file__).parents[1])
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
            self._write(self._watched._asdict())
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(OSError):
                pipe.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:  # it hangs inside a driver
            _kill(process)

    async def seen(self, since_s: float, until_s: float) -> Seen:
        """What was seen in a window that is over, by `time.perf_counter`."""
        looked = await asyncio.to_thread(self._ask, since_s, until_s)
        names, machine = self._names, machine_use(looked, since_s=since_s, until_s=until_s)
        if names is None:
            return Seen(machine=machine, load=None)
        load = engine_load(looked, names, since_s=since_s, until_s=until_s)
        return Seen(machine=machine, load=load)

    def _ask(self, since_s: float, until_s: float) -> Told:
        try:
            if not self._ready:
                self._answer(0)
                self._ready = True
            self._asked += 1
            self._write([self._asked, since_s, until_s])
            return self._answer(self._asked)
        except (OSError, ValueError, TypeError):
            return Told([], [_GONE])

    def _write(self, words: object) -> None:
        if self._process is None or self._process.stdin is None:
            raise OSError("not started")
        self._process.stdin.write(json.dumps(words).encode() + b"\n")

    def _answer(self, number: int) -> Told:
        """The answer to that question; those to earlier ones came too late and are of windows that
        nobody waits for any more. Raises OSError where it does not come in time."""
        until_s = perf_counter() + _ANSWER_S
        while True:
            found, answer = told(self._line(until_s))
            if found == number:
                return answer

    def _line(self, until_s: float) -> bytes:
        if self._process is None or self._process.stdout is None:
            raise OSError("not started")
        while b"\n" not in self._unread:
            left_s = max(0.0, until_s - perf_counter())
            readable, _, _ = select.select([self._process.stdout], [], [], left_s)
            piece = self._process.stdout.read(1 << 16) if readable else b""
            if not piece:
                raise OSError("no answer")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill it; one that does not die of that is said, and left: a launch does not wait for it."""
    process.kill()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        logger.warning(
            "the observer (process %d) is alive %.0f s after SIGKILL and left behind: it hangs"
            " inside a driver, look at dmesg",
            process.pid,
            _END_S,
        )


def _watched(subject: Subject, every_s: float) -> Watched:
    names = subject.names
    wanted = [] if names is None else [names.running, names.queued]
    for others in (
        () if names is None else (names.kv_usage, names.preempted, names.looked_up, names.found)
    ):
        wanted += others
    return Watched(
        every_s=every_s,
        gpus=None if subject.gpus is None else list(subject.gpus),
        tags=list(subject.tags),
        roots=list(subject.roots),
        host=subject.here,
        metrics=[f"{url}/metrics" for url in subject.urls] if wanted else [],
        names=wanted,
        key=subject.key,
    )
