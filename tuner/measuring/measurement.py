"""Timings of requests over a steady window → the numbers of one rung. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

from tuner.definitions.levels import level_words
from tuner.definitions.slo import Slo
from tuner.frozen import Frozen
from tuner.measuring.goodput import goodput_rps
from tuner.measuring.machine import MachineUse
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.open_load import OpenLoad, open_load
from tuner.measuring.replicas import Replicas
from tuner.measuring.timing import RequestTiming as RequestTiming

ALONE = Replicas()
"""One server that has its host for itself."""
_INSTANT_S = 1e-9
_PACE_EVENTS = 9


class Distribution(Frozen):
    """Percentiles of one latency over the requests (or tokens) of a window."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class EngineLoad(Frozen):
    """The engine's own counts while the window was open, sampled; None what it does not count.

    `kv_usage` is the share of the KV cache in use, `preempted` how many requests lost their place
    in it, `prefix_found_share` the share of prompt tokens that the prefix cache knew.
    """

    running_mean: float
    running_max: float
    queued_mean: float
    queued_max: float
    samples: int
    kv_usage_mean: float | None = None
    kv_usage_max: float | None = None
    preempted: int | None = None
    prefix_found_share: float | None = None


class RungMeasurement(Frozen):
    """One rung, seen through a steady window of `window_s`: a closed loop at `concurrency`, or an
    open loop of `request_rate` requests a second.

    A latency is None where no request of the window could show it. Where one server stood for all
    replicas of a host, `streams` were played, all throughputs are those seen times `factor`, and
    everything else is that server's own. `instrument_lag_ms` is how much later than the kernel the
    client read, in real milliseconds; it is in no other number. `observed` is what the client saw
    of itself, `machine` what the machine did meanwhile, `doubts` what either says against the rung.
    `flush` is "done" where the engine forgot all prefixes before the rung, else why it did not.
    """

    concurrency: int | None = None
    request_rate: float | None = None
    window_s: float
    output_tok_s: float
    input_tok_s: float
    total_tok_s: float
    tok_s_per_gpu: float
    tok_s_per_user: float | None
    requests_completed: int
    requests_failed: int
    first_error: str | None = None
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    e2e_ms: Distribution | None
    engine_load: EngineLoad | None = None
    instrument_lag_ms: Distribution | None = None
    goodput_rps: float | None = None
    open_load: OpenLoad | None = None
    streams: int | None = None
    factor: float = 1.0
    observed: Observed | None = None
    machine: MachineUse | None = None
    doubts: list[Doubt] = []
    flush: str | None = None

    @property
    def void(self) -> bool:
        """Whether something speaks against its numbers that makes them worth nothing."""
        return any(doubt.voids for doubt in self.doubts)

    @property
    def level(self) -> float:
        """The concurrency or the request rate, whichever is given."""
        return self.request_rate or self.concurrency or 0

    @property
    def said(self) -> str:
        """`8`, or `2.5 req/s`."""
        return level_words(self.level, by_rate=self.request_rate is not None)

    @property
    def tok_per_joule(self) -> float | None:
        """Output tokens for each joule that the GPUs took; None where no power was observed."""
        return None if self.machine is None else self.machine.tok_per_joule

    @property
    def played(self) -> float:
        """How many streams there were in fact, or requests a second."""
        return self.level / self.factor if self.streams is None else self.streams


def measure(
    timings: Sequence[RequestTiming],
    *,
    concurrency: int | None = None,
    request_rate: float | None = None,
    start_s: float,
    end_s: float,
    gpus: int,
    lags_s: Sequence[float] = (),
    unsent_s: Sequence[float] = (),
    slos: Sequence[Slo] = (),
    replicas: Replicas = ALONE,
) -> RungMeasurement:
    """The numbers of a steady window [start_s, end_s], all units on the load's clock.

    Throughput counts tokens where they fall in time, so that requests longer than the window
    count for what they did inside it: an event's tokens are spread evenly since the request's
    event before, a first event's stand at its arrival, input tokens are spread over as long before
    the first event as the shortest wait for one took, since all else of a wait is a queue, and
    each is clipped at the window's edges. What a request that was cut off at the window's end had
    under way is taken as its own pace so far foretells, one event at the most: of as many tokens as
    its last one, or, after a first one, as events usually have. A failed request's tokens do not
    count.

    Latencies count from when a request was due, where it was (an open loop), else from its sending.

    * TTFT: first event - sending, of requests whose first event fell into the window.
    * TPOT: (last event - first event) / (output tokens - those of the first event), of requests
      that finished in the window. Where the first event carries one token that is the
      (latency - ttft) / (output_len - 1) of sglang's and vLLM's benchmarks.
    * ITL: a gap is divided by the tokens that ended it and counts once for each of them, as
      sglang's `benchmark/serving.py` does for `/generate`; speculative decoding and chunks of
      several tokens would otherwise show gaps that no token waited.
    * E2E: end - sending, of requests that finished in the window.
    * `tok_s_per_user`: tokens after the first event ÷ time spent on them, over all streams inside
      the window, what is cut off at its end included; it needs no request to finish.
    * `goodput_rps`: see `goodput`; of the limits in `slos`, None where none is on a latency that
      single requests have. `open_load`: see there, as the played servers saw it; None for a closed
      loop.
    * `requests_failed`: those with an error that were sent or ended inside the window; all of
      them where the load ended before its window began.
    * Throughputs count times `replicas.factor(concurrency)`; `gpus` are the whole host's.

    Percentiles are numpy's `linear` method (type 7 of Hyndman and Fan, 1996).
    """
    view = _Window(start_s, end_s, timings)
    failed = list(view.failed())
    factor = replicas.factor(concurrency)
    goodput = goodput_rps(list(view.finished()), slos, view.length_s)
    output_tok_s = factor * view.per_s(map(view.output_tokens, timings))
    input_tok_s = factor * view.per_s(map(view.input_tokens, timings))
    return RungMeasurement(
        concurrency=concurrency,
        request_rate=request_rate,
        window_s=view.length_s,
        output_tok_s=output_tok_s,
        input_tok_s=input_tok_s,
        total_tok_s=output_tok_s + input_tok_s,
        tok_s_per_gpu=output_tok_s / gpus,
        tok_s_per_user=view.decode_tok_s(),
        requests_completed=sum(1 for _ in view.finished()),
        requests_failed=len(failed),
        first_error=min(failed, key=lambda t: t.sent_s).error if failed else None,
        ttft_ms=_distribution(view.ttfts_s()),
        tpot_ms=_distribution(view.tpots_s()),
        itl_ms=_distribution(view.token_gaps_s()),
        e2e_ms=_distribution(view.latencies_s()),
        instrument_lag_ms=_distribution(lags_s),
        goodput_rps=None if goodput is None else factor * goodput,
        open_load=None
        if request_rate is None
        else open_load(timings, start_s=start_s, end_s=end_s, unsent_s=unsent_s),
        streams=None if concurrency is None else replicas.streams(concurrency),
        factor=factor,
    )


class _Window:
    """What of a request lies between two instants."""

    def __init__(self, start_s: float, end_s: float, timings: Sequence[RequestTiming]) -> None:
        self.start_s = start_s
        self.end_s = end_s
        self.length_s = max(0.0, end_s - start_s)
        self._timings = timings
        ttfts = list(self.ttfts_s())
        self._usual_ttft_s = sum(ttfts) / len(ttfts) if ttfts else None
        answered = (timing for timing in timings if timing.events)
        self._prefill_s = min((t.events[0][0] - t.sent_s for t in answered), default=0.0)
        self._queued_share = self._share_of_queued(len(ttfts))
        self._usual_decode_tok_s = _rate(self._between_events())
        self._usual_event_tokens = self._event_tokens()

    def holds(self, at_s: float) -> bool:
        """True inside; a window owns its end, not its start."""
        return self.start_s < at_s <= self.end_s

    def saw(self, timing: RequestTiming) -> bool:
        """True where a request was sent or ended inside."""
        return self.holds(timing.sent_s) or (
            timing.done_s is not None and self.holds(timing.done_s)
        )

    def failed(self) -> Iterator[RequestTiming]:
        """The requests with an error inside; all of them where the window never opened."""
        for timing in self._timings:
            if timing.error is not None and (self.saw(timing) or not self.length_s):
                yield timing

    def per_s(self, counts: Iterable[float]) -> float:
        """The counts together, by the second of the window."""
        return sum(counts) / self.length_s if self.length_s else 0.0

    def overlap_s(self, since_s: float, until_s: float) -> float:
        """How long a span was inside."""
        return max(0.0, min(until_s, self.end_s) - max(since_s, self.start_s))

    def finished(self) -> Iterator[RequestTiming]:
        """The requests that came to a good end inside."""
        for timing in self._timings:
            if timing.ended_well(self.start_s, self.end_s):
                yield timing

    def output_tokens(self, timing: RequestTiming) -> float:
        """Tokens generated inside; those of a failed request are of no use to anybody."""
        events = timing.events
        if not events or timing.error is not None:
            return 0.0
        inside = float(events[0][1]) if self.holds(events[0][0]) else 0.0
        for (before_s, _), (at_s, tokens) in pairwise(events):
            inside += self._share(tokens, before_s, at_s)
        return inside + self._open_gap(timing)[0]

    def input_tokens(self, timing: RequestTiming) -> float:
        """Input tokens processed inside, of requests that did not fail."""
        if timing.error is not None:
            return 0.0
        if timing.events:
            return self._prompt_share(timing, timing.events[0][0])
        return self._queued_share * self._expected_share(timing)

    def _expected_share(self, timing: RequestTiming) -> float:
        """Input tokens processed inside by a request that was cut off without a token, by the usual
        time of one; who waited longer than that stands in a queue for all that is known."""
        if self._usual_ttft_s is None or not timing.cut or timing.events:
            return 0.0
        due_s = timing.sent_s + self._usual_ttft_s
        return self._prompt_share(timing, due_s) if due_s > self.end_s else 0.0

    def _prompt_share(self, timing: RequestTiming, first_s: float) -> float:
        since_s = max(timing.sent_s, first_s - self._prefill_s)
        return self._share(timing.input_tokens, since_s, first_s)

    def _share_of_queued(self, began: int) -> float:
        """Of what was expected of requests without a token: no more can be under way at once than
        begin in the time of one (Little's law), or one."""
        expected = sum(
            self._expected_share(timing) / timing.input_tokens
            for timing in self._timings
            if timing.input_tokens
        )
        most = max(1.0, began * self._prefill_s / self.length_s) if self.length_s else 0.0
        return min(1.0, most / expected) if expected else 1.0

    def ttfts_s(self) -> Iterator[float]:
        """Time to first token."""
        for timing in self._timings:
            if timing.events and self.holds(timing.events[0][0]):
                yield timing.events[0][0] - timing.came_s

    def tpots_s(self) -> Iterator[float]:
        """Time per output token after the first event."""
        for timing in self.finished():
            if timing.tpot_s is not None:
                yield timing.tpot_s

    def token_gaps_s(self) -> Iterator[float]:
        """The wait for each token after a first event, of events inside."""
        for timing in self._timings:
            for (before_s, _), (at_s, tokens) in pairwise(timing.events):
                if self.holds(at_s):
                    yield from [(at_s - before_s) / tokens] * tokens

    def latencies_s(self) -> Iterator[float]:
        """Time from sending to the end."""
        for timing in self.finished():
            if timing.e2e_s is not None:
                yield timing.e2e_s

    def decode_tok_s(self) -> float | None:
        """How fast one stream's tokens came while it was generating."""
        return _rate(chain(self._between_events(), self._open_gaps()))

    def _between_events(self) -> Iterator[tuple[float, float]]:
        """Tokens and seconds inside, of each gap between two events."""
        for timing in self._timings:
            for (before_s, _), (at_s, count) in pairwise(timing.events):
                if self.overlap_s(before_s, at_s) or at_s == before_s:
                    yield self._share(count, before_s, at_s), self.overlap_s(before_s, at_s)

    def _open_gaps(self) -> Iterator[tuple[float, float]]:
        """Of each gap that the end cut off: long ones are met more often than others."""
        for timing in self._timings:
            if timing.events and timing.error is None:
                yield self._open_gap(timing)

    def _share(self, tokens: int, since_s: float, until_s: float) -> float:
        if until_s <= since_s:
            return float(tokens) if self.holds(until_s) else 0.0
        return tokens * self.overlap_s(since_s, until_s) / (until_s - since_s)

    def _open_gap(self, timing: RequestTiming) -> tuple[float, float]:
        """Tokens that were being generated at the end, towards an event that was not waited for,
        and the seconds inside that they took so far."""
        last_s, last_tokens = timing.events[-1]
        tokens, since_s = float(last_tokens), max(last_s, self.start_s)
        if not timing.cut or since_s >= self.end_s:
            return 0.0, 0.0
        if len(timing.events) > 1:
            tok_s = _pace_tok_s(timing.events[-_PACE_EVENTS:])
        elif self._usual_decode_tok_s:
            # A first event is smaller than those to come, where they carry several tokens.
            tokens, tok_s = self._usual_event_tokens, self._usual_decode_tok_s
        else:
            return 0.0, 0.0
        coming = min(tokens, timing.requested_tokens - timing.output_tokens)
        if coming <= 0:
            return 0.0, 0.0
        # Never more than one event: a server that fell silent gets nothing for its silence.
        expected_s = max(coming / tok_s, self.end_s - last_s)
        return coming * (self.end_s - since_s) / expected_s, self.end_s - since_s

    def _event_tokens(self) -> float:
        """How many tokens come with the event that a token inside comes with, but for first ones;
        1 where there was none. By tokens and not by events, since what is under way at an instant
        is the larger the likelier."""
        later = [
            tokens
            for timing in self._timings
            for at_s, tokens in timing.events[1:]
            if self.holds(at_s)
        ]
        return sum(tokens**2 for tokens in later) / sum(later) if sum(later) else 1.0


def _rate(parts: Iterable[tuple[float, float]]) -> float | None:
    """Tokens a second over (tokens, seconds); None where they took no time."""
    tokens = seconds = 0.0
    for count, took_s in parts:
        tokens, seconds = tokens + count, seconds + took_s
    return tokens / seconds if seconds > 0 else None


def _pace_tok_s(events: Sequence[tuple[float, int]]) -> float:
    """How fast tokens came after the first of these events: a single gap would be as jittery as the
    arrivals at both of its ends, and what looks faster than it was counts more."""
    tokens = sum(count for _, count in events[1:])
    return tokens / max(events[-1][0] - events[0][0], _INSTANT_S)


def _distribution(values_s: Iterable[float]) -> Distribution | None:
    import numpy as np  # here: the values of this module are needed where no number is computed

    values_ms = np.fromiter(values_s, dtype=float) * 1000
    if not values_ms.size:
        return None
    p50, p90, p95, p99 = np.percentile(values_ms, (50, 90, 95, 99), method="linear")
    return Distribution(
        count=int(values_ms.size),
        mean=float(values_ms.mean()),
        p50=float(p50),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99),
        max=float(values_ms.max()),
    )
