"""What a load generator saw of itself in a window, from the timings of its requests. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from tuner.measuring.measurement import RequestTiming
from tuner.measuring.observed import Observed

SLICES = 10


def observe(
    timings: Sequence[RequestTiming],
    *,
    start_s: float,
    end_s: float,
    cpu_share: float | None = None,
    wait_share: float | None = None,
    forgiven_s: float = 0.0,
) -> Observed:
    """What the load generator saw of itself in the window [start_s, end_s].

    `forgiven_s` is how late a stream may ask again without this server's noticing.
    """
    gaps = list(_gaps_s(timings, start_s, end_s))
    late = sorted(max(0.0, late_s - forgiven_s) for _, late_s in gaps)
    finished = [t for t in timings if t.ended_well(start_s, end_s)]
    window_s = max(end_s - start_s, 0.0)
    forgiven = sum(min(late_s, forgiven_s) for _, late_s in gaps)
    under_way_s = _overlaps_s(timings, start_s, end_s) + forgiven
    return Observed(
        in_flight=under_way_s / window_s if window_s else 0.0,
        cycle_ms=fmean(cycle_s for cycle_s, _ in gaps) * 1000 if gaps else None,
        late_ms=fmean(late) * 1000 if late else None,
        late_p99_ms=late[math.ceil(0.99 * len(late)) - 1] * 1000 if late else None,
        short=sum(1 for t in finished if t.output_tokens < t.requested_tokens),
        together=_together(timings, start_s, end_s),
        cpu_share=cpu_share,
        wait_share=wait_share,
        slice_tok_s=_slices(timings, start_s, end_s),
    )


def _gaps_s(
    timings: Sequence[RequestTiming], start_s: float, end_s: float
) -> Iterator[tuple[float, float]]:
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


def _together(timings: Iterable[RequestTiming], start_s: float, end_s: float) -> float | None:
    """Of the events inside, those that came by one read with the next of their request."""
    events = together = 0
    for timing in timings:
        for (at_s, _), (next_s, _) in pairwise(timing.events):
            if start_s < next_s <= end_s:
                events += 1
                together += at_s == next_s
    return together / events if events else None


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
