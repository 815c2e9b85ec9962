"""Many sockets read together: where much comes, one look at all of them instead of a waking each.

A waking costs several times what a read costs. When events come fast the sockets are left alone for
a moment after each look, and the next look finds several. That makes no stamp late: when each event
came is the kernel's to say (`tuner.http.wire`).
"""

import asyncio
import select
from collections.abc import Callable
from time import perf_counter
from weakref import WeakKeyDictionary

READ_BYTES = 1 << 16
"""As much is read at once; where it was so much, there may be more."""
REST_S = 0.001
"""How long sockets are left alone. The end of an answer is seen that much later at the most, and
with it the time for the next request: that is what a rest costs."""
RESTFUL_EVENTS_S = 4000.0
"""Reads a second from which on rests are taken: with fewer of them a rest spares too little."""
_NEWS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
"""Each arrival is told once: told until it is read, the kernel looks twice at every socket."""
_COUNTED_S = 0.02
"""How long reads are counted before it is judged how fast they come."""


class Readers:
    """Calls back for each socket that has something to read; one for an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readable: dict[int, Callable[[], int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._resting = False
        self._reads = 0
        self._since_s = perf_counter()
        loop.add_reader(self._epoll, self._look)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "Readers":
        """The one of that loop."""
        readers = _READERS.get(loop)
        if readers is None:
            readers = _READERS[loop] = cls(loop)
        return readers

    def add(self, descriptor: int, readable: Callable[[], int]) -> None:
        """Call back whenever there is something new to read, an end or an error included.

        What is called back reads at most `READ_BYTES` and returns how many it read, 0 where there
        was nothing or the socket was let go of.
        """
        self._readable[descriptor] = readable
        self._epoll.register(descriptor, _NEWS)

    def remove(self, descriptor: int) -> None:
        """Call back no more."""
        if self._readable.pop(descriptor, None) is None:
            return
        self._epoll.unregister(descriptor)
        if not self._readable:
            self._close()

    def _look(self) -> None:
        found = self._epoll.poll(0)
        for descriptor, what in found:
            readable = self._readable.get(descriptor)
            if readable is None:  # an earlier one of this look let go of it
                continue
            size = readable()
            while size == READ_BYTES or (size and what != select.EPOLLIN):
                size = readable()
        self._reads += len(found)
        self._judge()

    def _judge(self) -> None:
        if not self._readable:
            return
        passed_s = perf_counter() - self._since_s
        if passed_s > _COUNTED_S:
            self._rest(self._reads > RESTFUL_EVENTS_S * passed_s)
            self._reads, self._since_s = 0, self._since_s + passed_s
        if self._resting:
            self._timer = self._loop.call_later(REST_S, self._look)

    def _rest(self, resting: bool) -> None:
        if resting and not self._resting:
            self._loop.remove_reader(self._epoll)
        elif self._resting and not resting:
            self._loop.add_reader(self._epoll, self._look)
        self._resting = resting

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._epoll)
        self._epoll.close()
        del _READERS[self._loop]


_READERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Readers] = WeakKeyDictionary()
