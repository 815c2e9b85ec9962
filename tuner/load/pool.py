"""Connections for an open loop, opened ahead: what is due waits for none."""

import asyncio
import resource
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tuner.errors import HttpUnreachable
from tuner.http.exchange import Tally
from tuner.load.channels import Channel, channels_to
from tuner.load.plan import Target
from tuner.load.source import Ending

LEAST_SPARES = 8
MOST_SPARES = 256
SPARE_S = 0.5
"""Arrivals of so long find an open connection, also where none was given back meanwhile."""
MOST_CHANNELS = 16_384
"""Fewer than the ports that one address has towards one server."""
_KEPT_DESCRIPTORS = 64
_OPENS_AT_ONCE = 32
_LOOK_S = 0.25
_OPEN_FILES = Path("/proc/self/fd")


class Pool:
    """Channels to each server of a target; grows up to `limit` of them in all.

    The last one given back is taken first, so that the others may grow old; those that a server
    closed for that are opened again in the background while they are needed as spares.
    """

    def __init__(
        self, target: Target, tally: Tally, *, rate: float, limit: int | None = None
    ) -> None:
        self._tally = tally
        urls = (target.base_url, *target.replicas)
        self._targets = [replace(target, base_url=url, replicas=()) for url in urls]
        self._idle: list[list[Channel]] = [[] for _ in urls]
        self._all: list[Channel] = []
        self.limit = most_channels() if limit is None else limit
        wanted = max(LEAST_SPARES, min(MOST_SPARES, round(SPARE_S * rate)))
        self._spares = max(1, min(wanted, self.limit) // len(urls))
        self._wanted = asyncio.Event()

    def take(self, place: int) -> Channel | None:
        """A channel to that server, open if any is; None where all that there may be are busy."""
        idle = self._idle[place]
        ready = next((n for n in reversed(range(len(idle))) if idle[n].ready), len(idle) - 1)
        channel = idle.pop(ready) if idle else self._make(place)
        self._wanted.set()
        return channel

    def give_back(self, place: int, channel: Channel) -> None:
        """Have it taken again."""
        self._idle[place].append(channel)

    async def connect(self) -> bool:
        """Open the spares; False where that failed, which requests will tell in their turn."""
        return all(await asyncio.gather(*map(self._fill, range(len(self._targets)))))

    async def keep(self, ending: Ending) -> None:
        """Keep as many open as there should be, until the end."""
        while not ending.over:
            self._wanted.clear()
            if not await self.connect():
                await ending.pause(_LOOK_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wanted.wait()

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        for channel in self._all:
            channel.cut()

    async def close(self) -> None:
        """Let go of every channel."""
        for channel in self._all:
            await channel.close()

    async def _fill(self, place: int) -> bool:
        """Open what is missing; meanwhile it is out of everyone's reach."""
        idle = self._idle[place]
        missing = max(0, self._spares - sum(channel.ready for channel in idle))
        opening = [channel for channel in idle if not channel.ready][:missing]
        for channel in opening:
            idle.remove(channel)
        made = (self._make(place) for _ in range(missing - len(opening)))
        opening += [channel for channel in made if channel is not None]
        gate = asyncio.Semaphore(_OPENS_AT_ONCE)
        return all(await asyncio.gather(*(self._open(place, each, gate) for each in opening)))

    async def _open(self, place: int, channel: Channel, gate: asyncio.Semaphore) -> bool:
        async with gate:
            try:
                await channel.open()
            except HttpUnreachable:
                return False
            finally:
                self._idle[place].append(channel)
        return True

    def _make(self, place: int) -> Channel | None:
        if len(self._all) >= self.limit:
            return None
        (channel,) = channels_to(self._targets[place], (0,), self._tally)
        self._all.append(channel)
        return channel


def most_channels() -> int:
    """How many connections this process may open, by its limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CHANNELS
    taken = len(list(_OPEN_FILES.iterdir())) if _OPEN_FILES.exists() else 0
    return max(1, min(MOST_CHANNELS, soft - taken - _KEPT_DESCRIPTORS))
