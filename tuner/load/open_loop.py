"""An open loop: requests are sent when they are due, whoever still waits for an answer."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain, count, cycle, takewhile
from time import perf_counter

from tuner.load.arrivals import due_times
from tuner.load.channels import Channel
from tuner.load.plan import WHOLE, RungPlan, Share, Target
from tuner.load.pool import Pool
from tuner.load.prompts import Asking, Askings
from tuner.load.readying import prompts_for
from tuner.load.source import Asker, Ending, Loop, Question

FAILURES_TO_GIVE_UP = 20
_AWAKE_S = 0.001
"""Timers count milliseconds: what is left of the last one is waited awake, ..."""
_AWAKE_SHARE = 0.2
"""... as long as that takes no more than this share of the time between two requests."""


class OpenLoop(Loop):
    """Sends each request at its own time, an absolute one, on a connection that is open by then.

    A slow server is sent no less: its answers pile up, which is what users would see. What was due
    by the end and was not sent is `unsent`: beyond the limit of connections, still without one at
    the end, or not come to. Sent and unsent together are all that was due.
    """

    def __init__(
        self, target: Target, plan: RungPlan, ending: Ending, share: Share = WHOLE
    ) -> None:
        self._scale = target.time_scale
        self._servers = 1 + len(target.replicas)
        prompts = prompts_for(target, plan, index=share.index, of=share.of)
        super().__init__(Asker(target, prompts), ending)
        self._plan = plan
        self._share = share
        own_rate = (plan.request_rate or 1.0) * target.time_scale / share.of
        self._pool = Pool(target, self._tally, rate=own_rate)
        self._awake_s = min(_AWAKE_S, _AWAKE_SHARE / own_rate)
        self._failures = 0
        self.unsent: list[float] = []

    @property
    def unanswered(self) -> bool:
        """Whether many requests in a row failed."""
        return self._failures >= FAILURES_TO_GIVE_UP

    @property
    def heard(self) -> int:
        """Requests whose exchange is over: an answer's beginning says nothing of how many there
        will be at a time."""
        return self.finished

    @property
    def awaited(self) -> int:
        """As many as are under way: by then twice an answer's time passed, if the server keeps
        up."""
        return max(1, self.under_way)

    async def connect(self) -> None:
        """Open the first connections."""
        await self._pool.connect()

    async def run(self) -> None:
        """Send what is due until the load is over."""
        begun_s = perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pool.keep(self._ending))
            schedule = self._schedule(begun_s)
            for number, due_s, asking in schedule:
                question = self._asker.question(asking)
                await self._until(due_s)
                if self._ending.over:
                    self._leave(chain([due_s], (later_s for _, later_s, _ in schedule)))
                    return
                place = number % self._servers
                channel = self._pool.take(place)
                if channel is None:
                    self.unsent.append(due_s)
                    continue
                group.create_task(self._send(channel, question, number, due_s))

    def ease(self) -> None:
        """Nothing: what comes when it comes is nobody's to take back."""

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        self._pool.cut()

    async def close(self) -> None:
        """Let go of every channel."""
        await self._pool.close()

    def _schedule(self, begun_s: float) -> Iterator[tuple[int, float, Asking]]:
        """What this process sends: number, when it is due, lengths."""
        plan, share = self._plan, self._share
        times = due_times(
            plan.arrivals,
            plan.request_rate or 1.0,
            seed=plan.arrivals_seed,
            rung_index=plan.rung_index,
            offsets_s=plan.offsets_s,
        )
        due = (begun_s + at_s / self._scale for at_s in times)
        whole = zip(count(), due, _askings(plan), strict=False)
        return (one for one in whole if share.has(one[0], self._servers))

    def _leave(self, due: Iterable[float]) -> None:
        """Keep in mind what of these rising times has come without its request being sent."""
        now_s = perf_counter()
        self.unsent += takewhile(lambda due_s: due_s <= now_s, due)

    async def _until(self, due_s: float) -> None:
        await self._ending.pause(due_s - perf_counter() - self._awake_s)
        await asyncio.sleep(0)  # also where more than one is due: the one before must get away
        while perf_counter() < due_s and not self._ending.over:
            await asyncio.sleep(0)

    async def _send(self, channel: Channel, question: Question, number: int, due_s: float) -> None:
        try:
            raw = await self._asker.ask(channel, question, stream=number, index=0, due_s=due_s)
        except asyncio.CancelledError:  # what was sent is cut: this one had no connection yet
            self.unsent.append(due_s)
            raise
        self._pool.give_back(number % self._servers, channel)
        self._failures = 0 if self._asker.seems_well(raw) else self._failures + 1


def _askings(plan: RungPlan) -> Iterator[Asking]:
    """Of a trace whose times are kept, requests come in its own order; otherwise as lengths do."""
    if plan.arrivals == "trace":
        return cycle([Asking(*pair, number=place) for place, pair in enumerate(plan.lengths)])
    lengths = Askings(plan.lengths, streams=1, seed=plan.order_seed, rung_index=plan.rung_index)
    return (lengths.next() for _ in count())
