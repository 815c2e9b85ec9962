"""Plays a load against a server and brings back what happened; computes no statistic.

The life of a rung is here: connect, warm up, open the window, end it, stop, decode. What is asked
is its source's, when the window may open and end is its pace's.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from time import perf_counter

from tuner.load.clock import Clock
from tuner.load.pace import Pace
from tuner.load.plan import Played, RungPlan, Target
from tuner.load.readying import Readied, readied
from tuner.load.runner import still_heap
from tuner.load.solo import Counts, Players, Solo, Span, ended
from tuner.load.source import Ending

Afterwards = Callable[[], Awaitable[None]]
Beat = Callable[[int, int], None]
Progress = Callable[[float], None]

PROGRESS_EVERY_S = 0.25
_HEARD_OUT_S = 0.1
"""After its end a window is listened to: what had arrived by then may still wait to be read, and
what an event after it brings was for the most part made inside, by a share that is then known."""
_WARM_UP_LOOKS = 64
_TIGHT_LOOKS = 256
"""In a warm-up, and in a window that may end once throughput is known tightly, about: four for each
of the slices that a pace looks at. More would cost what is measured."""
_SHORTEST_LOOK_S = 0.005
_LONGEST_LOOK_S = 0.05


async def play(
    target: Target,
    plan: RungPlan,
    *,
    afterwards: Afterwards | None = None,
    beat: Beat | None = None,
    progress: Progress | None = None,
) -> Played:
    """Load a server for a warm-up and a window, then cut what is under way.

    The window opens once the warm-up is over, throughput has no trend any more, and every stream
    has its first token (of an open loop, as many answers are whole as are under way); not later
    than when the last warm-up's length brought no further one, as where a full engine lets some
    wait, or the pace's longest warm-up passed. Failures are in the timings; the window is cut short
    once nobody answers. `afterwards` is done once the window has ended, under the same load, which
    then goes on for it, but for streams that wait in a queue of the engine. `beat` is told at each
    look how many pieces of answers came so far and how many requests are under way, `progress` a
    few times a second how many seconds of the load's clock an open window still has, if it is not
    prolonged.

    Raises: HttpProtocolError where the target's URL cannot be read.
    """
    ready = await readied(target, plan)
    players = players_for(ready.target, plan)
    rung = _Rung(ready, plan, players, beat, progress)
    try:
        with still_heap():
            await players.connect()
            await rung.play(afterwards)
            return await rung.played()
    finally:
        await players.close()


def players_for(target: Target, plan: RungPlan) -> Players:
    """Who plays: as many processes as are asked for, and there are cores and streams for.

    Raises: HttpProtocolError where the target's URL cannot be read.
    """
    processes = min(
        plan.processes, plan.concurrency or plan.processes, len(os.sched_getaffinity(0))
    )
    if processes <= 1:
        return Solo(target, plan)
    from tuner.load.crew import Crew  # here: one process needs nothing of it

    return Crew(target, plan, processes)


class _Rung:
    def __init__(
        self,
        ready: Readied,
        plan: RungPlan,
        players: Players,
        beat: Beat | None,
        progress: Progress | None,
    ) -> None:
        self._ready = ready
        self._plan = plan
        self._players = players
        self._beat = beat
        self._progress = progress
        self._told_s = 0.0
        self._scale = ready.target.time_scale
        self._ending = Ending()
        self._pace = Pace(
            warmup_s=plan.warmup_s,
            window_s=plan.window_s,
            streams=plan.concurrency or 0,
            precision_percent=plan.precision_percent,
            least_requests=plan.least_requests,
        )
        self._at_start = Counts()
        self._origin_s = self._start_s = self._end_s = 0.0

    async def play(self, afterwards: Afterwards | None) -> None:
        """Let the players play until the window ends or nobody answers."""
        self._origin_s = perf_counter()
        self._players.start()
        try:
            await self._warm_up()
            self._open()
            if self._at_start.over:  # nobody answered even before: that is what there is to tell
                self._start_s = self._origin_s
            await self._window()
            if not self._at_start.over:
                self._players.mark()
            await self._ending.pause(_HEARD_OUT_S)
            if afterwards is not None and not self._players.counts().over:
                self._players.ease()
                await self._beating(afterwards())
        finally:
            self._ending.now()
            await self._players.stop()

    async def played(self) -> Played:
        """Decode what came, now that the clock has stopped."""
        clock = Clock(origin_s=self._origin_s, time_scale=self._scale)
        span = Span(clock=clock, start_s=self._start_s, end_s=self._end_s)
        brought = await self._players.brought(span)
        return Played(
            timings=brought.timings,
            start_s=clock.at(self._start_s),
            end_s=clock.at(self._end_s),
            lags_s=brought.lags_s,
            stamped=brought.stamped,
            cpu_share=brought.cpu_share,
            wait_share=brought.wait_share,
            processes=self._players.processes,
            warmup_s=clock.at(self._start_s),
            stable=self._pace.stable,
            ended=self._pace.ended,
            real_s=(self._start_s, self._end_s),
            unsent_s=tuple(map(clock.at, brought.unsent_s)),
            primers=self._ready.primers,
            primed=self._ready.primed,
        )

    async def _warm_up(self) -> None:
        heard, grew_s = 0, 0.0
        while True:
            counts, now_s = self._counts(), self._surface_s(perf_counter())
            if counts.heard > heard:
                heard, grew_s = counts.heard, now_s
            settled = self._pace.opens(now_s, counts.events)
            waited = heard and now_s - max(grew_s, self._plan.warmup_s) > self._plan.warmup_s
            if settled and (counts.heard >= counts.awaited or waited):
                return
            if counts.over or now_s >= self._pace.longest_warmup_s:
                return
            await self._ending.pause(self._look_s(self._plan.warmup_s, _WARM_UP_LOOKS))

    def _open(self) -> None:
        self._players.mark()
        self._at_start = self._players.counts()
        self._start_s = self._end_s = perf_counter()
        self._pace.opened(self._surface_s(self._start_s), self._at_start.events)

    async def _window(self) -> None:
        due_s = self._start_s + self._plan.window_s / self._scale
        looks = 0 if self._plan.precision_percent is None else _TIGHT_LOOKS
        look_s = self._look_s(self._plan.window_s, looks)
        while True:
            counts, now_s = self._counts(), perf_counter()
            self._tell(now_s, due_s)
            # What is looked at a little late ends when its time was up.
            self._end_s = due_s if self._end_s < due_s <= now_s else now_s
            requests = self._began_and_ended(counts)
            if self._pace.ends(self._surface_s(now_s), counts.events, requests) or counts.over:
                return
            await self._ending.pause(min(look_s, due_s - now_s) if now_s < due_s else look_s)

    async def _beating(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_LONGEST_LOOK_S)
                self._counts()
            task.result()
        finally:
            await ended(task)

    def _counts(self) -> Counts:
        counts = self._players.counts()
        if self._beat is not None:
            self._beat(counts.events, counts.under_way)
        return counts

    def _began_and_ended(self, counts: Counts) -> int:
        """Of the requests since the window opened at least so many: those that were under way then
        may have ended first."""
        since = counts.finished - self._at_start.finished
        return max(0, since - self._at_start.under_way)

    def _tell(self, now_s: float, due_s: float) -> None:
        if self._progress is not None and now_s >= self._told_s + PROGRESS_EVERY_S:
            self._told_s = now_s
            self._progress(max(0.0, due_s - now_s) * self._scale)

    def _surface_s(self, real_s: float) -> float:
        return (real_s - self._origin_s) * self._scale

    def _look_s(self, lasts_s: float, looks: int) -> float:
        apart_s = lasts_s / self._scale / looks if looks else _LONGEST_LOOK_S
        return min(max(apart_s, _SHORTEST_LOOK_S), _LONGEST_LOOK_S)
