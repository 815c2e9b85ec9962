"""A rung's requests, played in this process: what one control starts, looks at and stops."""

import asyncio
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.load.clock import Clock
from tuner.load.closed_loop import ClosedLoop
from tuner.load.decoding import timings_of
from tuner.load.dialects import DIALECTS
from tuner.load.open_loop import OpenLoop
from tuner.load.plan import WHOLE, RungPlan, Share, Target
from tuner.load.source import Asked, Ending, Source
from tuner.measuring.measurement import RequestTiming

LONGEST_STOP_S = 0.25
"""What a cut request gets to end by itself."""
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far a load is, since it began. `events` are pieces of answers, `finished` requests whose
    exchange is over; `heard` of those that are `awaited` have heard something. `over` says that
    nobody answered of late; they go on all the same until they are stopped."""

    events: int = 0
    finished: int = 0
    under_way: int = 0
    heard: int = 0
    awaited: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A load's clock, and its window in seconds of `perf_counter`."""

    clock: Clock
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What came, decoded. `lags_s` are of the window; `stamped` says whether the kernel told any
    lag; the shares are of one core over the window, None where the system does not say. `unsent_s`
    is when requests were due that could not be sent, by `perf_counter`."""

    timings: tuple[RequestTiming, ...]
    lags_s: Sequence[float]
    stamped: bool
    cpu_share: float | None
    wait_share: float | None
    unsent_s: Sequence[float] = ()


class Players(Protocol):
    """Who makes a rung's requests, in one process or in several."""

    processes: int

    async def connect(self) -> None:
        """Connect ahead, as far as that is possible."""
        ...

    def start(self) -> None:
        """Begin to make requests."""
        ...

    def counts(self) -> Counts:
        """How far the load is, or was a moment ago."""
        ...

    def mark(self) -> None:
        """The window opens, or ends: what is used of a core is counted between the two."""
        ...

    def ease(self) -> None:
        """Take back what waits in a queue: a further request need not wait for all of it."""
        ...

    async def stop(self) -> None:
        """Make no further request and leave what is under way unfinished."""
        ...

    async def brought(self, span: Span) -> Brought:
        """Decode what came, now that the clock has stopped."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class Solo:
    """Plays in this process and on the running loop."""

    processes = 1

    def __init__(self, target: Target, plan: RungPlan, share: Share = WHOLE) -> None:
        self._dialect = DIALECTS[target.api]
        self._ending = Ending()
        self._source = source_of(target, plan, self._ending, share)
        self._task: asyncio.Task[None] | None = None
        self._marks: list[_Use] = []

    async def connect(self) -> None:
        """Connect ahead."""
        await self._source.connect()

    def start(self) -> None:
        """Begin to make requests."""
        self._task = asyncio.create_task(self._source.run())

    def counts(self) -> Counts:
        """How far the load is."""
        source = self._source
        return Counts(
            events=source.events,
            finished=source.finished,
            under_way=source.under_way,
            heard=source.heard,
            awaited=source.awaited,
            over=source.unanswered,
        )

    def mark(self) -> None:
        """The window opens, or ends."""
        self._marks.append(_Use.now())

    def ease(self) -> None:
        """Take back what waits in a queue."""
        self._source.ease()

    async def stop(self) -> None:
        """Make no further request and leave what is under way unfinished."""
        self._ending.now()
        self._source.cut()
        if self._task is not None:
            await ended(self._task)

    async def brought(self, span: Span) -> Brought:
        """Decode what came."""
        asked = self._source.asked
        shares = _shares(*self._marks[:2]) if len(self._marks) > 1 else (None, None)
        return Brought(
            timings=timings_of(asked, self._dialect, span.clock),
            lags_s=_lags_s(asked, span),
            stamped=any(one.raw.lags_s for one in asked)
            or not any(one.raw.pieces for one in asked),
            cpu_share=shares[0],
            wait_share=shares[1],
            unsent_s=tuple(self._source.unsent),
        )

    async def close(self) -> None:
        """Let go of every channel."""
        await self._source.close()


def source_of(target: Target, plan: RungPlan, ending: Ending, share: Share) -> Source:
    """Where the requests of a plan come from."""
    loop = ClosedLoop if plan.request_rate is None else OpenLoop
    return loop(target, plan, ending, share)


async def ended(task: asyncio.Task[None]) -> None:
    """Wait for a task that was told to end, a little; then cancel it. Raises what it raised."""
    await asyncio.wait([task], timeout=LONGEST_STOP_S)
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(result, Exception):
        raise result


def _lags_s(asked: Sequence[Asked], span: Span) -> Sequence[float]:
    """How late what belongs to the window was read."""
    lags_s = array("d")
    for one in asked:
        ended_s = one.raw.done_s or one.raw.failed_s or span.end_s
        if one.raw.sent_s < span.end_s and ended_s > span.start_s:
            lags_s.extend(one.raw.lags_s)
    return lags_s


@dataclass(frozen=True, slots=True)
class _Use:
    """What this thread had of a core so far, and how long it waited for one."""

    at_s: float
    cpu_s: float
    waited_s: float | None

    @classmethod
    def now(cls) -> "_Use":
        return cls(time.perf_counter(), time.thread_time(), _waited_s())


def _shares(before: _Use, after: _Use) -> tuple[float | None, float | None]:
    took_s = after.at_s - before.at_s
    if took_s <= 0:
        return None, None
    cpu_share = (after.cpu_s - before.cpu_s) / took_s
    if before.waited_s is None or after.waited_s is None:
        return cpu_share, None
    return cpu_share, (after.waited_s - before.waited_s) / took_s


def _waited_s() -> float | None:
    """How long this thread was ready to run without a core, since it began."""
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
