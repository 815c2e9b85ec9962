"""Many sockets read together: where much comes, one look at all of them instead of a waking each.

A waking costs several times what a read costs. When events come fast the sockets are left alone for
a moment after each look, and the next look finds several. That makes no stamp late: when each event
came is the kernel's to say (`tuner.http.wire`).
"""

import asyncio
import select
from math import exp, inf
from time import perf_counter
from typing import Protocol
from weakref import WeakKeyDictionary

READ_BYTES = 1 << 16
"""As much is read at once; where it was so much, there may be more."""
LONGEST_REST_S = 0.005
_SHORTEST_REST_S = 0.001
"""What an event loop's timers can tell apart."""
_WANTED_READS = 64
"""So many are wanted of a rest: more spare little more."""
_LEAST_READS = 4
"""A rest that finds fewer spares nothing."""
_GAP_SHARE = 0.25
"""Of the time between two events of a stream: of two that one look finds, the first has the time of
the second, which is off by a rest at most. It is the stream's that brings the most, not the mean:
beside it others may be as slow, or as silent, as they like."""
_CYCLE_SHARE = 0.002
"""Of the time from an answer's end to the next one's on the same stream: the end is seen half a
rest late on average, and the next request is sent that much later than it could be."""
_NEWS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
"""Each arrival is told once: told until it is read, the kernel looks twice at every socket."""
_COUNTED_S = 0.05
"""How long reads are counted before it is judged how fast they come, ..."""
_COUNTED_AT_REST_S = 0.2
"""... and while the sockets rest: of the fastest stream so many that one more or less, by where the
time begins, matters little."""
_REMEMBERED_S = 2.0
"""After so long an answer counts a third: a cycle that is longer forbids no rest."""


def rest_s(*, reads_s: float, gap_s: float, cycle_s: float) -> float:
    """How long streams may be left alone that bring so many reads a second, of which the fastest
    has an event every `gap_s`, and each an answer every `cycle_s`; 0 where they may not."""
    if not reads_s:
        return 0.0
    rest_s = min(LONGEST_REST_S, max(_WANTED_READS / reads_s, _SHORTEST_REST_S))
    rest_s = min(rest_s, _GAP_SHARE * gap_s, _CYCLE_SHARE * cycle_s)
    return rest_s if rest_s >= _SHORTEST_REST_S and rest_s * reads_s >= _LEAST_READS else 0.0


class _Counts:
    """What was read of late, of sockets that spoke: kept ones and those that wait count nothing."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        """Of each descriptor."""
        self._since_s = perf_counter()
        self._at_rest = False
        self._answers = 0
        self._remembered_reads = 0.0
        self._remembered_answers = 0.0

    def expect(self, descriptor: int) -> None:
        """Have a place for it."""
        self.reads.extend([0] * (descriptor + 1 - len(self.reads)))

    def answered(self) -> None:
        """One more answer came to its end."""
        self._answers += 1

    def rest_s(self) -> float | None:
        """How long the streams may be left alone by what was counted, which then begins anew; None
        where it is too early to say."""
        now_s = perf_counter()
        passed_s = now_s - self._since_s
        if passed_s <= (_COUNTED_AT_REST_S if self._at_rest else _COUNTED_S):
            return None
        of = [reads for reads in self.reads if reads]
        self.reads, self._since_s = [0] * len(self.reads), now_s
        reads = sum(of)
        cycle_s = len(of) * passed_s / reads * self._reads_an_answer(reads, passed_s) if of else inf
        gap_s = passed_s / max(of, default=1)
        judged_s = rest_s(reads_s=reads / passed_s, gap_s=gap_s, cycle_s=cycle_s)
        self._at_rest = judged_s > 0
        return judged_s

    def _reads_an_answer(self, reads: int, passed_s: float) -> float:
        """Over the last seconds: a time without reads says nothing of how long answers are."""
        kept = exp(-passed_s / _REMEMBERED_S)
        self._remembered_reads = self._remembered_reads * kept + reads
        self._remembered_answers = self._remembered_answers * kept + self._answers
        self._answers = 0
        if not self._remembered_answers:
            return inf
        return self._remembered_reads / self._remembered_answers


class Reader(Protocol):
    """What reads a socket."""

    def read(self) -> int:
        """Read at most `READ_BYTES`, and return how many these were: 0 where there was nothing, or
        the socket was let go of."""
        ...


class Readers:
    """Has each socket read that has something to read; one for an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readers: list[Reader | None] = []
        """Of each descriptor, which the system keeps small: a list spares what a dict compares."""
        self._kept = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rest_s = 0.0
        self._counts = _Counts()
        loop.add_reader(self._epoll, self._look)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "Readers":
        """The one of that loop."""
        readers = _READERS.get(loop)
        if readers is None:
            readers = _READERS[loop] = cls(loop)
        return readers

    def add(self, descriptor: int, reader: Reader) -> None:
        """Have it read whenever there is something new, an end or an error included."""
        self._readers.extend([None] * (descriptor + 1 - len(self._readers)))
        self._readers[descriptor] = reader
        self._counts.expect(descriptor)
        self._kept += 1
        self._epoll.register(descriptor, _NEWS)

    def remove(self, descriptor: int) -> None:
        """Have it read no more."""
        if descriptor >= len(self._readers) or self._readers[descriptor] is None:
            return
        self._readers[descriptor] = None
        self._kept -= 1
        self._epoll.unregister(descriptor)
        if not self._kept:
            self._close()

    def answered(self) -> None:
        """One more answer came to its end."""
        self._counts.answered()

    def _look(self) -> None:
        readers, reads = self._readers, self._counts.reads
        for descriptor, what in self._epoll.poll(0):
            reader = readers[descriptor]
            if reader is None:  # an earlier one of this look let go of it
                continue
            reads[descriptor] += 1
            size = reader.read()
            while size == READ_BYTES or (size and what != select.EPOLLIN):
                size = reader.read()
        self._judge()

    def _judge(self) -> None:
        if not self._kept:
            return
        judged_s = self._counts.rest_s()
        if judged_s is not None:
            self._rest(judged_s)
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
