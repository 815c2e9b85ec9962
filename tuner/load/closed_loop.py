"""A closed loop: each stream sends its next request when the last one's answer ended."""

import asyncio
from collections.abc import Sequence

from tuner.errors import HttpUnreachable
from tuner.load.backoff import backoff_s
from tuner.load.channels import Channel, channels_to
from tuner.load.plan import WHOLE, RungPlan, Share, Target
from tuner.load.prompts import Askings
from tuner.load.readying import prompts_for
from tuner.load.source import Asker, Ending, Loop

FAILURES_TO_GIVE_UP = 5
_SPREAD_PER_STREAM_S = 0.005
_LONGEST_SPREAD_S = 2.0
_CONNECTS_AT_ONCE = 64
_QUEUED_SHARE = 0.25
"""More streams than this that wait for their first token wait for a place, not for a prefill."""


class ClosedLoop(Loop):
    """Keeps as many requests under way as there are streams, one channel each.

    Each stream starts where a loop that has run for long would stand: with a residual output
    length, and the tokens before it as part of its prompt.
    """

    def __init__(
        self, target: Target, plan: RungPlan, ending: Ending, share: Share = WHOLE
    ) -> None:
        self._warmup_s = plan.warmup_s / target.time_scale
        self._streams = plan.concurrency or 1
        servers = 1 + len(target.replicas)
        own = [stream for stream in range(self._streams) if share.has(stream, servers)]
        self._lengths = Askings(
            plan.lengths,
            streams=self._streams,
            seed=plan.order_seed,
            rung_index=plan.rung_index,
            index=share.index,
            of=share.of,
        )
        prompts = prompts_for(target, plan, index=share.index, of=share.of)
        super().__init__(Asker(target, prompts), ending)
        self._channels = dict(zip(own, channels_to(target, own, self._tally), strict=True))
        self._failures = dict.fromkeys(own, 0)
        self._silent = list(own)
        self._ended: set[int] = set()

    @property
    def unsent(self) -> Sequence[float]:
        """None: a request waits for its stream."""
        return ()

    @property
    def unanswered(self) -> bool:
        """Whether every stream failed several times in a row."""
        return min(self._failures.values()) >= FAILURES_TO_GIVE_UP

    @property
    def heard(self) -> int:
        """How many streams heard something."""
        self._silent = [stream for stream in self._silent if not self._heard(stream)]
        return len(self._channels) - len(self._silent)

    @property
    def awaited(self) -> int:
        """All streams."""
        return len(self._channels)

    async def connect(self) -> None:
        """Connect ahead; a stream whose channel cannot yet be opened tries again by itself."""
        gate = asyncio.Semaphore(_CONNECTS_AT_ONCE)

        async def connect(channel: Channel) -> None:
            async with gate:
                await channel.open()

        opened = await asyncio.gather(
            *map(connect, self._channels.values()), return_exceptions=True
        )
        for result in opened:
            if isinstance(result, BaseException) and not isinstance(result, HttpUnreachable):
                raise result

    async def run(self) -> None:
        """Run all streams until the load is over."""
        async with asyncio.TaskGroup() as group:
            for stream in self._channels:
                group.create_task(self._stream(stream))

    def ease(self) -> None:
        """End the streams that have heard nothing of their answer yet, where those are so many that
        they wait in a queue."""
        waiting = [s for s in self._channels if not self._channels[s].pieces]
        if len(waiting) > _QUEUED_SHARE * len(self._channels) and len(waiting) > 1:
            self._ended.update(waiting)
            for stream in waiting:
                self._channels[stream].cut()

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        for channel in self._channels.values():
            channel.cut()

    async def close(self) -> None:
        """Let go of every channel."""
        for channel in self._channels.values():
            await channel.close()

    async def _stream(self, stream: int) -> None:
        await self._ending.pause(self._start_delay_s(stream))
        index = 0
        while not self._ending.over and stream not in self._ended:
            asking = self._lengths.next() if index else self._lengths.first(stream)
            question = self._asker.question(asking)
            channel = self._channels[stream]
            raw = await self._asker.ask(channel, question, stream=stream, index=index)
            index += 1
            if self._asker.seems_well(raw):
                self._failures[stream] = 0
                continue
            self._failures[stream] += 1
            await self._ending.pause(backoff_s(self._failures[stream], raw))

    def _heard(self, stream: int) -> bool:
        return self._failures[stream] > 0 or self._channels[stream].heard

    def _start_delay_s(self, stream: int) -> float:
        longest_s = min(_LONGEST_SPREAD_S, _SPREAD_PER_STREAM_S * self._streams)
        return min(self._warmup_s / 4, longest_s) * stream / self._streams
