"""When each stream's tokens are due. Pure: the caller says what time it is.

All running requests share the engine's throughput alike, so they advance on one common axis:
`progress`, in tokens of one stream, which grows by `throughput / running` a second. A request
takes its place at some progress, has its first token once its first-token time is over, and its
last where as much progress was made as it has tokens: a closed loop then sees exactly the
surface's throughput, for any length, whatever happens to concurrency in between. (A first-token
time beyond `_LONGEST_PREFILL` of the request is cut to that.)
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tuner.rehearsal.behaviour import Behaviour

_LONGEST_PREFILL = 0.9


@dataclass(slots=True, eq=False)
class Stream:
    """One request on its way: `tokens` in all, `sent` of them so far; `owner` is the caller's."""

    owner: Any
    tokens: int
    sent: int = 0
    alive: bool = True
    _first: float = 0.0
    _step: float = 0.0
    _chunk: int = 1

    def start(self, begins: float, arrives: float, prefill: float, chunk: int) -> None:
        """Lay the tokens out: the first `prefill` after it arrives, the last so that all of it
        takes as much progress as it has tokens, from `begins` on."""
        self._first = arrives + prefill
        if self.tokens > 1:
            latest = begins + _LONGEST_PREFILL * self.tokens
            self._first = max(arrives, min(self._first, latest))
            rest = max(begins - self._first + self.tokens, (1 - _LONGEST_PREFILL) * self.tokens)
            self._step = rest / (self.tokens - 1)
        self._chunk = chunk

    def next_count(self) -> int:
        """How many tokens will have been sent after the next event."""
        return min(self.sent + self._chunk, self.tokens) if self.sent else 1

    def due(self, count: int) -> float:
        """The progress at which the token of that number is due."""
        return self._first + (count - 1) * self._step

    @property
    def finished(self) -> bool:
        """Whether all its tokens were sent."""
        return self.sent >= self.tokens


@dataclass(slots=True)
class Pacer:
    """The running and waiting requests of one engine; all times are real seconds of one clock.

    `wall_offset_s` added to them gives the wall clock.
    """

    behaviour: Behaviour
    now_s: float
    wall_offset_s: float = 0.0
    progress: float = 0.0
    running: int = 0
    stalled: bool = False
    _rate: float = 0.0
    _noise: float = 1.0
    _noise_until_s: float = 0.0
    _order: int = 0
    _due: list[tuple[float, int, Stream]] = field(default_factory=list)
    _queue: deque[Stream] = field(default_factory=deque)
    _vacated: deque[tuple[float, float]] = field(default_factory=deque)

    @property
    def queued(self) -> int:
        """Requests that wait for a place in the pool."""
        return len(self._queue)

    def submit(self, now_s: float, stream: Stream) -> None:
        """Start a request, or let it wait where the pool is full.

        A request that arrives within the turnaround of one that ended takes its place, as if it
        had come at once.
        """
        self._move(now_s)
        if self.running >= self.behaviour.pool:
            self._queue.append(stream)
            return
        begins = self._vacated.popleft()[0] if self._vacated else self.progress
        self._start(stream, begins=begins, arrives=self.progress)
        self._retime()

    def cancel(self, now_s: float, stream: Stream) -> None:
        """Forget a request; nothing more of it is sent."""
        if not stream.alive or stream.finished:
            return
        self._move(now_s)
        stream.alive = False
        if stream in self._queue:
            self._queue.remove(stream)
            return
        self.running -= 1
        if self._queue:
            self._start(self._queue.popleft(), begins=self.progress, arrives=self.progress)
        self._retime()

    def advance(self, now_s: float) -> list[Stream]:
        """The streams that have new tokens to send, each once, with `sent` at its new count."""
        self._move(now_s)
        events = []
        while self._due and self._due[0][0] <= self.progress and not self.stalled:
            stream = heapq.heappop(self._due)[2]
            if not stream.alive:
                continue
            stream.sent = stream.next_count()
            while not stream.finished and stream.due(stream.next_count()) <= self.progress:
                stream.sent = stream.next_count()
            events.append(stream)
            if stream.finished:
                self._end(stream.due(stream.tokens), now_s)
            else:
                self._push(stream)
        self._expire(now_s)
        self._retime()
        return events

    def next_s(self) -> float | None:
        """When `advance` will have something to do; None while nothing is on its way."""
        times = [self._vacated[0][1]] if self._vacated else []
        if self._due and self._rate > 0 and not self.stalled:
            times.append(self.now_s + max(0.0, self._due[0][0] - self.progress) / self._rate)
        return min(times, default=None)

    @property
    def throughput(self) -> float:
        """Output tokens per surface second at this moment."""
        return self._rate * self._sharing / self.behaviour.surface.time_scale

    @property
    def _sharing(self) -> int:
        return self.running + len(self._vacated)

    def _start(self, stream: Stream, *, begins: float, arrives: float) -> None:
        self.running += 1
        behaviour, sharing = self.behaviour, self._sharing
        speed = behaviour.output_tok_s(sharing)
        prefill_s = behaviour.ttft_s(sharing) * behaviour.ttft_factor()
        per_s = behaviour.surface.max_events_per_s / behaviour.surface.time_scale
        chunk = max(1, math.ceil(speed / per_s))
        stream.start(begins, arrives, prefill_s * speed / sharing, chunk)
        self._push(stream)

    def _end(self, progress: float, now_s: float) -> None:
        self.running -= 1
        if self._queue:
            self._start(self._queue.popleft(), begins=progress, arrives=progress)
        else:
            self._vacated.append((progress, now_s + self.behaviour.surface.turnaround_s))

    def _push(self, stream: Stream) -> None:
        self._order += 1
        heapq.heappush(self._due, (stream.due(stream.next_count()), self._order, stream))

    def _expire(self, now_s: float) -> None:
        while self._vacated and self._vacated[0][1] <= now_s:
            self._vacated.popleft()

    def _move(self, now_s: float) -> None:
        self.progress += self._rate * (now_s - self.now_s)
        self.now_s = now_s

    def _retime(self) -> None:
        surface, sharing = self.behaviour.surface, self._sharing
        if self.now_s >= self._noise_until_s:
            self._noise = self.behaviour.run_factor()
            self._noise *= self.behaviour.drift_factor(self.now_s + self.wall_offset_s)
            self._noise_until_s = self.now_s + surface.noise.run_period_s / surface.time_scale
        speed = self.behaviour.output_tok_s(sharing) * self._noise if sharing else 0.0
        self._rate = speed * surface.time_scale / sharing if sharing else 0.0
