"""Plays a closed loop against a server and brings back what happened; computes no statistic."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter

from tuner.errors import HttpUnreachable
from tuner.http.connection import RawExchange
from tuner.load.channels import Channel, open_channels
from tuner.load.dialects import DIALECTS, Reply, decode, spread
from tuner.load.plan import Played, RungPlan, Target
from tuner.load.prompts import Lengths, Prompts
from tuner.measuring.measurement import RequestTiming

Probe = Callable[[], Awaitable[tuple[float, float] | None]]

PROBE_EVERY_S = 0.25
FAILURES_TO_GIVE_UP = 5
_BACKOFF_S = 0.05
_LONGEST_BACKOFF_S = 1.0
_SPREAD_PER_STREAM_S = 0.005
_LONGEST_SPREAD_S = 2.0
_CONNECTS_AT_ONCE = 64
_LONGEST_STOP_S = 0.25
_LONGEST_WARMUP = 4
"""Times the warm-up that was asked for: a ramp that takes longer is what is measured."""
_WARMUP_LOOK_S = 0.01


async def play(target: Target, plan: RungPlan, *, probe: Probe | None = None) -> Played:
    """Load a server for a warm-up and a window, then cut what is under way.

    The window opens once the warm-up is over and every stream has its first token; not later than
    when the last warm-up's length brought no further stream its first, as where a full engine lets
    some wait. Each stream starts where a loop that has run for long would stand: with a residual
    output length, and the tokens before it as part of its prompt. Failures are in the timings; the
    window is cut short once every stream failed several times in a row. `probe` says how many
    requests run and wait in the engine, asked a few times a second during the window.

    Raises: HttpProtocolError where the target's URL cannot be read.
    """
    channels = _channels(target, plan.concurrency)
    rung = _Rung(target, plan, channels)
    try:
        await rung.connect()
        with _still_heap():
            await rung.play(probe)
            return rung.played()
    finally:
        for channel in channels:
            await channel.close()


def _channels(target: Target, streams: int) -> list[Channel]:
    """One for each stream; with several servers each gets every so manieth."""
    path = DIALECTS[target.api].path
    urls = [url.rstrip("/") + path for url in (target.base_url, *target.replicas)]
    channels: dict[int, Channel] = {}
    for place, url in enumerate(urls):
        dealt = range(place, streams, len(urls))
        channels |= zip(dealt, open_channels(url, len(dealt), key=target.key), strict=True)
    return [channels[stream] for stream in range(streams)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    stream: int
    index: int
    input_tokens: int
    output_tokens: int
    raw: RawExchange


class _Rung:
    def __init__(self, target: Target, plan: RungPlan, channels: Sequence[Channel]) -> None:
        self._target = target
        self._plan = plan
        self._channels = channels
        self._dialect = DIALECTS[target.api]
        self._lengths = Lengths(
            plan.lengths,
            streams=plan.concurrency,
            seed=plan.order_seed,
            rung_index=plan.rung_index,
        )
        self._prompts = Prompts(
            seed=plan.prompt_seed,
            rung_index=plan.rung_index,
            vocab_size=target.vocab_size,
            longest=self._lengths.longest,
        )
        self._asked: list[_Asked] = []
        self._samples: list[tuple[float, float, float]] = []
        self._over = asyncio.Event()
        self._failures = [0] * plan.concurrency
        self._origin_s = self._start_s = self._end_s = 0.0

    async def connect(self) -> None:
        """Connect ahead; a stream whose channel cannot yet be opened tries again by itself."""
        gate = asyncio.Semaphore(_CONNECTS_AT_ONCE)

        async def connect(channel: Channel) -> None:
            async with gate:
                await channel.open()

        opened = await asyncio.gather(*map(connect, self._channels), return_exceptions=True)
        for result in opened:
            if isinstance(result, BaseException) and not isinstance(result, HttpUnreachable):
                raise result

    async def play(self, probe: Probe | None) -> None:
        """Run all streams until the window ends or nobody answers."""
        self._origin_s = perf_counter()
        self._start_s = self._end_s = float("inf")
        tasks = [asyncio.create_task(self._stream(n)) for n in range(self._plan.concurrency)]
        try:
            await self._warm_up(self._plan.warmup_s / self._target.time_scale)
            self._start_s = perf_counter()
            self._end_s = self._start_s + self._plan.window_s / self._target.time_scale
            if probe is not None:
                tasks.append(asyncio.create_task(self._sample(probe)))
            await self._pause(self._end_s - perf_counter())
        finally:
            if self._over.is_set():  # nobody answered any more
                self._end_s = min(self._end_s, perf_counter())
            self._start_s = min(self._start_s, self._end_s)
            await self._stop(tasks)

    def played(self) -> Played:
        """Decode what came, now that the clock has stopped."""
        replies = [(asked, decode(asked.raw, self._dialect)) for asked in self._asked]
        per_event = _tokens_per_event([r for asked, r in replies if asked.raw.done_s is not None])
        return Played(
            timings=tuple(self._timing(asked, reply, per_event) for asked, reply in replies),
            start_s=self._clock(self._start_s),
            end_s=self._clock(self._end_s),
            load_samples=tuple(
                (self._clock(at), running, queued) for at, running, queued in self._samples
            ),
            lags_s=tuple(self._lags_s()),
        )

    def _lags_s(self) -> Iterator[float]:
        for asked in self._asked:
            ended_s = asked.raw.done_s or asked.raw.failed_s or self._end_s
            if asked.raw.sent_s < self._end_s and ended_s > self._start_s:
                yield from asked.raw.lags_s

    async def _stream(self, stream: int) -> None:
        await self._pause(self._start_delay_s(stream))
        index = 0
        while not self._over.is_set():
            raw = await self._ask(stream, index)
            index += 1
            if raw is not None and _seems_well(raw):
                self._failures[stream] = 0
                continue
            self._failures[stream] += 1
            if min(self._failures) >= FAILURES_TO_GIVE_UP:
                self._over.set()
            backoff_s = _BACKOFF_S * 2 ** (self._failures[stream] - 1)
            await self._pause(min(_LONGEST_BACKOFF_S, backoff_s))

    async def _ask(self, stream: int, index: int) -> RawExchange | None:
        asking = self._lengths.next() if index else self._lengths.first(stream)
        prompt = self._prompts.next(asking.input_tokens + asking.done)
        body = self._dialect.body(self._target.model, prompt, asking.output_tokens)
        asked_s = perf_counter()
        try:
            raw = await self._channels[stream].post(body)
        except HttpUnreachable as exc:
            raw = RawExchange(sent_s=asked_s, failed_s=perf_counter(), error=exc)
        self._asked.append(
            _Asked(
                stream=stream,
                index=index,
                input_tokens=len(prompt),
                output_tokens=asking.output_tokens,
                raw=raw,
            )
        )
        return raw

    async def _warm_up(self, warmup_s: float) -> None:
        await self._pause(warmup_s)
        heard, grew_s = 0, perf_counter()
        while not self._over.is_set():
            now_s, heard_now = perf_counter(), sum(map(self._heard, range(len(self._failures))))
            if heard_now > heard:
                heard, grew_s = heard_now, now_s
            if heard_now == self._plan.concurrency or (heard and now_s - grew_s > warmup_s):
                return
            if now_s - self._origin_s > _LONGEST_WARMUP * warmup_s:
                return
            await self._pause(_WARMUP_LOOK_S)

    def _heard(self, stream: int) -> bool:
        return self._failures[stream] > 0 or self._channels[stream].heard

    async def _sample(self, probe: Probe) -> None:
        while not self._over.is_set():
            sample = await probe()
            if sample is not None:
                self._samples.append((perf_counter(), *sample))
            await self._pause(PROBE_EVERY_S)

    async def _pause(self, duration_s: float) -> None:
        """Wait, but not beyond the end."""
        until_s = perf_counter() + duration_s
        # uvloop's timers count milliseconds and may ring early.
        while not self._over.is_set() and (left_s := until_s - perf_counter()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._over.wait()

    async def _stop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._over.set()
        for channel in self._channels:
            channel.cut()
        _, late = await asyncio.wait(tasks, timeout=_LONGEST_STOP_S)
        for task in late:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result

    def _start_delay_s(self, stream: int) -> float:
        warmup_s = self._plan.warmup_s / self._target.time_scale
        streams = self._plan.concurrency
        spread_s = min(warmup_s / 4, _LONGEST_SPREAD_S, _SPREAD_PER_STREAM_S * streams)
        return spread_s * stream / streams

    def _clock(self, real_s: float) -> float:
        return (real_s - self._origin_s) * self._target.time_scale

    def _timing(self, asked: _Asked, reply: Reply, per_event: float | None) -> RequestTiming:
        raw = asked.raw
        events, error = _counted(asked, reply, per_event)
        ended_s = raw.done_s if raw.done_s is not None else raw.failed_s
        return RequestTiming(
            stream=asked.stream,
            index=asked.index,
            sent_s=self._clock(raw.sent_s),
            events=tuple((self._clock(at), tokens) for at, tokens in events),
            done_s=None if ended_s is None else self._clock(ended_s),
            input_tokens=reply.input_tokens or asked.input_tokens,
            output_tokens=sum(tokens for _, tokens in events),
            requested_tokens=asked.output_tokens,
            error=error,
            text=reply.text,
        )


def _seems_well(raw: RawExchange) -> bool:
    """True unless the next request should wait; only decoding tells for sure, afterwards."""
    if raw.status != 200 or raw.error is not None or not raw.chunks:
        return False
    return len(raw.chunks) > 1 or b'"error"' not in raw.chunks[0][1]


def _counted(
    asked: _Asked, reply: Reply, per_event: float | None
) -> tuple[tuple[tuple[float, int], ...], str | None]:
    """The events with their tokens, and what is wrong with them."""
    events, error = reply.events, reply.error
    if reply.uncounted and error is None:
        if per_event is None:
            return events, "tokens are counted at a request's end, and none came to its end"
        left = asked.output_tokens - reply.output_tokens
        estimate = min(round(per_event * len(reply.uncounted)), left)
        events += tuple(spread(estimate, reply.uncounted))
    if reply.output_tokens > asked.output_tokens:
        return (), f"{asked.output_tokens} tokens were asked and {reply.output_tokens} counted"
    return events, error


def _tokens_per_event(replies: Sequence[Reply]) -> float | None:
    """For servers that count at the end only: what an event of theirs carries on average."""
    whole = [reply for reply in replies if reply.error is None]
    events = sum(len(reply.events) for reply in whole)
    return sum(reply.output_tokens for reply in whole) / events if events else None


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
