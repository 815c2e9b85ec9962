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
LONGEST_REST_S = 0.004
_SHORTEST_REST_S = 0.001
"""What an event loop's timers can tell apart."""
_WANTED_READS = 32
"""So many are wanted of a rest: more spare little more."""
_LEAST_READS = 4
"""A rest that finds fewer spares nothing."""
_GAP_SHARE = 0.25
"""Of the time between two events of a stream: two that one look finds have one time."""
_CYCLE_SHARE = 0.002
"""Of the time from an answer's end to the next one's on the same stream: the end is seen half a
rest late on average, and the next request is sent that much later than it could be."""
_NEWS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
"""Each arrival is told once: told until it is read, the kernel looks twice at every socket."""
_COUNTED_S = 0.05
"""How long reads are counted before it is judged how fast they come."""


def rest_s(*, reads_s: float, streams: int, answers_s: float) -> float:
    """How long so many streams may be left alone that bring so many reads, and whole answers, a
    second; 0 where they may not."""
    if not reads_s:
        return 0.0
    rest_s = min(LONGEST_REST_S, max(_WANTED_READS / reads_s, _SHORTEST_REST_S))
    rest_s = min(rest_s, _GAP_SHARE * streams / reads_s)
    if answers_s:
        rest_s = min(rest_s, _CYCLE_SHARE * streams / answers_s)
    return rest_s if rest_s >= _SHORTEST_REST_S and rest_s * reads_s >= _LEAST_READS else 0.0


class Readers:
    """Calls back for each socket that has something to read; one for an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readable: dict[int, Callable[[], int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rest_s = 0.0
        self._reads = 0
        self._answers = 0
        self._began_s = self._since_s = perf_counter()
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

    def answered(self) -> None:
        """One more answer came to its end."""
        self._answers += 1

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
        now_s = perf_counter()
        passed_s = now_s - self._since_s
        if passed_s > _COUNTED_S:
            self._rest(
                rest_s(
                    reads_s=self._reads / passed_s,
                    streams=len(self._readable),
                    answers_s=self._answers / (now_s - self._began_s),
                )
            )
            self._reads, self._since_s = 0, now_s
        if self._rest_s:
            self._timer = self._loop.call_later(self._rest_s, self._look)

    def _rest(self, rest_s: float) -> None:
        if rest_s and not self._rest_s:
            self._loop.remove_reader(self._epoll)
        elif self._rest_s and not rest_s:
            self._loop.add_reader(self._epoll, self._look)
        self._rest_s = rest_s

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._epoll)
        self._epoll.close()
        del _READERS[self._loop]


_READERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Readers] = WeakKeyDictionary()
