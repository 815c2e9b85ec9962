"""Plays a load against a server and brings back what happened; computes no statistic.

The life of a rung is here: connect, warm up, open the window, stop, decode. What is asked, and
when, is its source's.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from tuner.load.closed_loop import ClosedLoop
from tuner.load.decoding import timings_of
from tuner.load.dialects import DIALECTS
from tuner.load.plan import Played, RungPlan, Target
from tuner.load.readying import readied
from tuner.load.source import Ending, Source

Probe = Callable[[], Awaitable[tuple[float, float] | None]]
Afterwards = Callable[[], Awaitable[None]]

PROBE_EVERY_S = 0.25
_LONGEST_STOP_S = 0.25
_LONGEST_WARMUP = 4
"""Times the warm-up that was asked for: a ramp that takes longer is what is measured."""
_WARMUP_LOOK_S = 0.01


async def play(
    target: Target,
    plan: RungPlan,
    *,
    probe: Probe | None = None,
    afterwards: Afterwards | None = None,
) -> Played:
    """Load a server for a warm-up and a window, then cut what is under way.

    The window opens once the warm-up is over and every stream has its first token; not later than
    when the last warm-up's length brought no further stream its first, as where a full engine lets
    some wait. Failures are in the timings; the window is cut short once nobody answers. `probe`
    says how many requests run and wait in the engine, asked a few times a second during the window.
    `afterwards` is done once the window has ended, under the same load, which then goes on for it.

    Raises: HttpProtocolError where the target's URL cannot be read.
    """
    target = await readied(target, plan)
    ending = Ending()
    source = source_of(target, plan, ending)
    rung = _Rung(target, plan, source, ending)
    try:
        await source.connect()
        with _still_heap():
            await rung.play(probe, afterwards)
            return rung.played()
    finally:
        await source.close()


def source_of(target: Target, plan: RungPlan, ending: Ending) -> Source:
    """Where the requests of a plan come from."""
    return ClosedLoop(target, plan, ending)


class _Rung:
    def __init__(self, target: Target, plan: RungPlan, source: Source, ending: Ending) -> None:
        self._target = target
        self._plan = plan
        self._source = source
        self._ending = ending
        self._samples: list[tuple[float, float, float]] = []
        self._origin_s = self._start_s = self._end_s = 0.0

    async def play(self, probe: Probe | None, afterwards: Afterwards | None) -> None:
        """Run the source until the window ends or nobody answers."""
        self._origin_s = perf_counter()
        self._start_s = self._end_s = float("inf")
        tasks = [asyncio.create_task(self._source.run())]
        try:
            await self._warm_up(self._plan.warmup_s / self._target.time_scale)
            self._start_s = perf_counter()
            self._end_s = self._start_s + self._plan.window_s / self._target.time_scale
            if probe is not None:
                tasks.append(asyncio.create_task(self._sample(probe)))
            await self._ending.pause(self._end_s - perf_counter())
            if afterwards is not None and not self._ending.over:
                await afterwards()
        finally:
            if self._ending.over:  # nobody answered any more
                self._end_s = min(self._end_s, perf_counter())
            self._start_s = min(self._start_s, self._end_s)
            await self._stop(tasks)

    def played(self) -> Played:
        """Decode what came, now that the clock has stopped."""
        return Played(
            timings=timings_of(self._source.asked, DIALECTS[self._target.api], self._clock),
            start_s=self._clock(self._start_s),
            end_s=self._clock(self._end_s),
            load_samples=tuple(
                (self._clock(at), running, queued) for at, running, queued in self._samples
            ),
            lags_s=tuple(self._lags_s()),
        )

    def _lags_s(self) -> Iterator[float]:
        for asked in self._source.asked:
            ended_s = asked.raw.done_s or asked.raw.failed_s or self._end_s
            if asked.raw.sent_s < self._end_s and ended_s > self._start_s:
                yield from asked.raw.lags_s

    async def _warm_up(self, warmup_s: float) -> None:
        await self._ending.pause(warmup_s)
        heard, grew_s = 0, perf_counter()
        while not self._ending.over:
            now_s, heard_now = perf_counter(), self._source.heard
            if heard_now > heard:
                heard, grew_s = heard_now, now_s
            if heard_now >= self._source.awaited or (heard and now_s - grew_s > warmup_s):
                return
            if now_s - self._origin_s > _LONGEST_WARMUP * warmup_s:
                return
            await self._ending.pause(_WARMUP_LOOK_S)

    async def _sample(self, probe: Probe) -> None:
        while not self._ending.over:
            sample = await probe()
            if sample is not None:
                self._samples.append((perf_counter(), *sample))
            await self._ending.pause(PROBE_EVERY_S)

    async def _stop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._ending.now()
        self._source.cut()
        _, late = await asyncio.wait(tasks, timeout=_LONGEST_STOP_S)
        for task in late:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result

    def _clock(self, real_s: float) -> float:
        return (real_s - self._origin_s) * self._target.time_scale


@contextmanager
def _still_heap() -> Iterator[None]:
    """No garbage collection inside: it would stop the clock's reader for milliseconds."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
