"""May a rung's numbers be believed? One function a rule, each with both numbers and advice. Pure.

A doubt either voids the rung or is a remark beside it. Rules look at what the load generator saw
of itself (`observe`) and at what it measured; none looks at whether the server is fast.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, stdev

from tuner.definitions.slo import LATENCIES, Slo
from tuner.frozen import Frozen
from tuner.measuring.measurement import Distribution, RequestTiming, RungMeasurement

ERROR_SHARE = 0.01
SHORT_SHARE = 0.01
LATE_SHARE = 0.01
"""Of a request's time, spent between an answer's end and the next request on its stream: so much
less load is offered than was asked for."""
CPU_SHARE = 0.8
BUSY_SHARE = 0.5
"""Of one core, which is all that one event loop can use: above it events begin to queue."""
WAIT_SHARE = 0.1
"""Of the window, spent ready to run without a core to run on."""
REACHED_SHARE = 0.95
LEAST_REQUESTS = 2
SLICES = 10
DRIFT_SHARE = 0.05
DRIFT_T = 3.355
"""Student's t with 8 degrees of freedom at 99 %, two-sided: two halves of five slices each."""
_TAILS = {"p50": 2, "p90": 10, "p95": 20, "p99": 100}
"""How many values a percentile needs for one of them to lie beyond it: 1 / (1 - q)."""


class Observed(Frozen):
    """What the load generator saw of itself in one window, on the load's clock.

    `in_flight` is the mean number of requests under way, `late_ms` how long a stream took from an
    answer's end to its next request, `cycle_ms` from request to request; None where no stream
    asked twice. `short` counts finished requests with fewer tokens than were asked. `cpu_share` and
    `wait_share` are of one core, None where the system does not say. `slice_tok_s` is the output of
    equal slices of the window.
    """

    in_flight: float
    cycle_ms: float | None
    late_ms: float | None
    late_p99_ms: float | None
    short: int
    cpu_share: float | None = None
    wait_share: float | None = None
    slice_tok_s: list[float] = []


class Doubt(Frozen):
    """A rule that a rung broke: what was found, the limit, what to do; `at` is the rung as people
    say it, `voids` says whether its numbers are worth nothing."""

    rule: str
    at: str
    voids: bool
    found: float
    limit: float
    said: str
    advice: str

    def __str__(self) -> str:
        return f"at {self.at}: {self.said}. {self.advice}"


Rule = Callable[[RungMeasurement, Observed, Sequence[Slo]], list[Doubt]]


def observe(
    timings: Sequence[RequestTiming],
    *,
    start_s: float,
    end_s: float,
    cpu_share: float | None = None,
    wait_share: float | None = None,
) -> Observed:
    """What the load generator saw of itself in the window [start_s, end_s]."""
    gaps = list(_gaps_s(timings, start_s, end_s))
    late = sorted(late_s for _, late_s in gaps)
    finished = [t for t in timings if t.error is None and t.done_s and start_s < t.done_s <= end_s]
    window_s = max(end_s - start_s, 0.0)
    return Observed(
        in_flight=_overlaps_s(timings, start_s, end_s) / window_s if window_s else 0.0,
        cycle_ms=fmean(cycle_s for cycle_s, _ in gaps) * 1000 if gaps else None,
        late_ms=fmean(late) * 1000 if late else None,
        late_p99_ms=late[math.ceil(0.99 * len(late)) - 1] * 1000 if late else None,
        short=sum(1 for t in finished if t.output_tokens < t.requested_tokens),
        cpu_share=cpu_share,
        wait_share=wait_share,
        slice_tok_s=_slices(timings, start_s, end_s),
    )


def _gaps_s(
    timings: Sequence[RequestTiming], start_s: float, end_s: float
) -> Iterable[tuple[float, float]]:
    """(request to request, answer's end to the next request) of each stream in the window.

    After a failure a stream waits on purpose: that is not late.
    """
    in_order = sorted(timings, key=lambda t: (t.stream, t.index))
    for one, other in pairwise(in_order):
        well = one.stream == other.stream and one.error is None
        if well and one.done_s is not None and start_s < other.sent_s <= end_s:
            yield other.sent_s - one.sent_s, other.sent_s - one.done_s


def _overlaps_s(timings: Iterable[RequestTiming], start_s: float, end_s: float) -> float:
    ends = ((t.sent_s, end_s if t.done_s is None else t.done_s) for t in timings)
    return sum(max(0.0, min(until, end_s) - max(since, start_s)) for since, until in ends)


def _slices(timings: Iterable[RequestTiming], start_s: float, end_s: float) -> list[float]:
    """Output tokens per second of equal slices, an event's tokens counted when it arrived."""
    slice_s = (end_s - start_s) / SLICES
    if slice_s <= 0:
        return []
    tokens = [0] * SLICES
    for timing in timings:
        if timing.error is None:
            for at_s, count in timing.events:
                if start_s < at_s <= end_s:
                    tokens[min(int((at_s - start_s) / slice_s), SLICES - 1)] += count
    return [count / slice_s for count in tokens]


def doubts(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo] = ()) -> list[Doubt]:
    """All that speaks against a rung's numbers, what voids them first; where every request failed
    that alone, since the rest follows from it."""
    if rung.requests_failed and not rung.requests_completed:
        return errors(rung, seen, slos)
    found = [doubt for rule in RULES for doubt in rule(rung, seen, slos)]
    return sorted(found, key=lambda doubt: not doubt.voids)


def errors(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Failed requests: a server that refuses load looks faster to the requests that it takes."""
    sent = rung.requests_completed + rung.requests_failed
    share = rung.requests_failed / sent if sent else 0.0
    if not rung.requests_failed:
        return []
    return [
        _doubt(
            "errors",
            rung,
            share,
            ERROR_SHARE,
            f"{rung.requests_failed} of {sent} requests failed ({share:.1%}, at most "
            f"{ERROR_SHARE:.0%} may), the first with: {rung.first_error}",
            "Read the server's log; offer less load or raise its limits.",
            voids=share > ERROR_SHARE,
        )
    ]


def requests(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Enough requests came to their end inside the window to say anything of a whole request."""
    if rung.requests_completed >= LEAST_REQUESTS:
        return []
    return [
        _doubt(
            "requests",
            rung,
            rung.requests_completed,
            LEAST_REQUESTS,
            f"{rung.requests_completed} requests came to their end inside a window of "
            f"{rung.window_s:.3g} s, at least {LEAST_REQUESTS} must",
            "Raise window_s in the objective, or ask for fewer output_tokens.",
        )
    ]


def percentiles(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Enough values lie beyond each percentile: those of SLOs must, others are remarked upon."""
    asked = {(slo.metric, slo.stat or "") for slo in slos if slo.metric in LATENCIES}
    found = [
        _doubt(
            "percentiles",
            rung,
            values.count,
            _TAILS[stat],
            f"{metric} {stat} is of {values.count} values, an SLO on it needs {_TAILS[stat]}",
            "Raise window_s in the objective, or set the SLO on a lower percentile.",
        )
        for metric, stat in sorted(asked)
        if (values := _values(rung, metric)) and values.count < _TAILS.get(stat, 0)
    ]
    ttft = rung.ttft_ms
    if found or ttft is None or ttft.count >= _TAILS["p99"]:
        return found
    said = f"p99 of TTFT is of {ttft.count} values, {_TAILS['p99']} are needed"
    advice = "Read it as the largest value; a longer window_s shows more."
    return [_doubt("percentiles", rung, ttft.count, _TAILS["p99"], said, advice, voids=False)]


def _values(rung: RungMeasurement, metric: str) -> Distribution | None:
    found: Distribution | None = getattr(rung, metric)
    return found


def output(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Answers are as long as they were asked to be: short ones make a server look fast."""
    share = seen.short / rung.requests_completed if rung.requests_completed else 0.0
    if share <= SHORT_SHARE:
        return []
    return [
        _doubt(
            "output",
            rung,
            share,
            SHORT_SHARE,
            f"{seen.short} of {rung.requests_completed} answers were shorter than asked "
            f"({share:.1%}, at most {SHORT_SHARE:.0%} may)",
            "The server does not heed ignore_eos: try the other --api.",
        )
    ]


def lateness(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Each stream asks again at once: a client that is late offers less load than it says."""
    if not seen.cycle_ms or seen.late_ms is None:
        return []
    share = seen.late_ms / seen.cycle_ms
    if share <= LATE_SHARE:
        return []
    return [
        _doubt(
            "lateness",
            rung,
            share,
            LATE_SHARE,
            f"streams asked again {seen.late_ms:.3g} ms late on average (p99 "
            f"{seen.late_p99_ms:.3g} ms), {share:.1%} of a request's {seen.cycle_ms:.4g} ms, at "
            f"most {LATE_SHARE:.0%} may be",
            "Give the client a core of its own, or run it on another machine.",
        )
    ]


def client_cpu(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The client itself had room: a full core stamps late and hides what the server could do."""
    if seen.cpu_share is None or seen.cpu_share <= BUSY_SHARE:
        return []
    return [
        _doubt(
            "client_cpu",
            rung,
            seen.cpu_share,
            CPU_SHARE,
            f"the client used {seen.cpu_share:.0%} of its core, {CPU_SHARE:.0%} are its limit",
            "Latencies may be the client's own: run fewer streams a client, on a faster core.",
            voids=seen.cpu_share > CPU_SHARE,
        )
    ]


def client_wait(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The client had a core when it needed one."""
    if seen.wait_share is None or seen.wait_share <= WAIT_SHARE:
        return []
    return [
        _doubt(
            "client_wait",
            rung,
            seen.wait_share,
            WAIT_SHARE,
            f"the client waited for a core in {seen.wait_share:.0%} of the window, at most "
            f"{WAIT_SHARE:.0%} may be",
            "Stop what else runs here, or pin the client: taskset -c N tuner measure ...",
        )
    ]


def reached(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """As many requests were under way as the rung is named for."""
    limit = REACHED_SHARE * (rung.concurrency or 0)
    if seen.in_flight >= limit:
        return []
    return [
        _doubt(
            "reached",
            rung,
            seen.in_flight,
            limit,
            f"{seen.in_flight:.1f} requests were under way on average, at least {limit:.4g} must",
            "Streams failed or could not connect: see the errors, and ulimit -n on both sides.",
        )
    ]


def drift(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Both halves of the window agree: a server that still warms up is not what it will be.

    Means of the two halves' slices, the difference held against Welch's standard error.
    """
    half = len(seen.slice_tok_s) // 2
    first, second = seen.slice_tok_s[:half], seen.slice_tok_s[half:]
    if half < 2 or not fmean(first):
        return []
    change = fmean(second) / fmean(first) - 1
    error = math.sqrt((stdev(first) ** 2 + stdev(second) ** 2) / half) / fmean(first)
    if abs(change) <= max(DRIFT_SHARE, DRIFT_T * error):
        return []
    return [
        _doubt(
            "drift",
            rung,
            change,
            DRIFT_SHARE,
            f"the second half of the window gave {fmean(second):.4g} tok/s, the first "
            f"{fmean(first):.4g} ({change:+.1%}, at most {DRIFT_SHARE:.0%} may be beyond noise)",
            "Raise warmup_s in the objective, or measure again now that the server is warm.",
        )
    ]


def _doubt(
    rule: str,
    rung: RungMeasurement,
    found: float,
    limit: float,
    said: str,
    advice: str,
    *,
    voids: bool = True,
) -> Doubt:
    return Doubt(
        rule=rule,
        at=rung.said,
        voids=voids,
        found=float(found),
        limit=float(limit),
        said=said,
        advice=advice,
    )


RULES: tuple[Rule, ...] = (
    errors,
    requests,
    percentiles,
    output,
    lateness,
    client_cpu,
    client_wait,
    reached,
    drift,
)
