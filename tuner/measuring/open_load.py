"""What an open loop offered in a window, and what of it was sent and answered. Pure."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from tuner.frozen import Frozen
from tuner.measuring.timing import RequestTiming

_INSTANT_S = 1e-6
_PART = 5
"""The number under way is compared between the first and the last fifth of a window."""


class OpenLoad(Frozen):
    """Requests a second that were due in the window, sent in it and well answered in it, as seen;
    how late they were sent; and how many were under way on average in its first and last fifth.

    Of the `due` ones `late_out` were not sent before the window ended, of them `unsent` never. Who
    was due and not sent is under way from then on. `late_share` is the mean lateness of what
    was sent in the window, or due in it, over the mean time from due to first token, None where
    none came.
    """

    due: int
    due_rps: float
    sent_rps: float
    answered_rps: float
    late_out: int
    unsent: int
    late_ms: float
    late_p99_ms: float
    late_share: float | None
    under_way_first: float
    under_way_last: float
    growth_rps: float

    @property
    def grows(self) -> bool:
        """Whether the requests under way become more and more: the server does not keep up.

        Their number swings with the arrivals, by about its own root where those are Poisson's; so
        much more than that, and more than a share of what was offered, is no swing.
        """
        swing = _SWINGS * math.sqrt(max(self.under_way_first, self.under_way_last))
        grown = self.under_way_last - self.under_way_first
        return self.growth_rps > _GROWTH_SHARE * self.due_rps and grown > swing


_SWINGS = 3.0
_GROWTH_SHARE = 0.05


def open_load(
    timings: Sequence[RequestTiming],
    *,
    start_s: float,
    end_s: float,
    unsent_s: Sequence[float] = (),
) -> OpenLoad:
    """What a load with due times was in the window [start_s, end_s]: `timings` of what was sent and
    `unsent_s` are together all that was due."""
    length_s = max(end_s - start_s, _INSTANT_S)
    sent = [t for t in timings if t.due_s is not None and start_s < t.due_s <= end_s]
    unsent = sum(1 for at_s in unsent_s if start_s < at_s <= end_s)
    # A client that is far behind sends in the window what was due before it.
    late = sorted(
        t.sent_s - t.due_s
        for t in timings
        if t.due_s is not None and t.due_s <= end_s and t.sent_s > start_s
    )
    part_s = length_s / _PART
    spans = [(t.came_s, end_s if t.done_s is None else t.done_s) for t in timings]
    spans += [(at_s, end_s) for at_s in unsent_s]
    first = _under_way(spans, start_s, start_s + part_s)
    last = _under_way(spans, end_s - part_s, end_s)
    return OpenLoad(
        due=len(sent) + unsent,
        due_rps=(len(sent) + unsent) / length_s,
        sent_rps=sum(1 for t in timings if start_s < t.sent_s <= end_s) / length_s,
        answered_rps=len(answered(timings, start_s, end_s)) / length_s,
        late_out=unsent + sum(1 for t in sent if t.sent_s > end_s),
        unsent=unsent,
        late_ms=fmean(late) * 1000 if late else 0.0,
        late_p99_ms=late[math.ceil(0.99 * len(late)) - 1] * 1000 if late else 0.0,
        late_share=_late_share(late, _ttfts_s(timings, start_s, end_s)),
        under_way_first=first,
        under_way_last=last,
        growth_rps=(last - first) / (length_s - part_s),
    )


def answered(timings: Iterable[RequestTiming], start_s: float, end_s: float) -> list[RequestTiming]:
    """The requests that came to a good end in the window."""
    return [t for t in timings if t.ended_well(start_s, end_s)]


def _ttfts_s(timings: Iterable[RequestTiming], start_s: float, end_s: float) -> list[float]:
    """Times to first tokens that came in the window: the shortest number that lateness is in."""
    return [
        t.events[0][0] - t.came_s for t in timings if t.events and start_s < t.events[0][0] <= end_s
    ]


def _late_share(late_s: Sequence[float], took_s: Sequence[float]) -> float | None:
    return fmean(late_s) / fmean(took_s) if late_s and took_s and fmean(took_s) > 0 else None


def _under_way(spans: Iterable[tuple[float, float]], start_s: float, end_s: float) -> float:
    """How many there were at a time, on average."""
    seconds = (max(0.0, min(until, end_s) - max(since, start_s)) for since, until in spans)
    return sum(seconds) / (end_s - start_s)
