"""When a rung's window may open, and when it may end. Pure: fed with counts, it says yes or no.

Throughput is looked at through the events of all streams together, counted so far: what a client
knows at no cost. A cumulative count is read off at equal distances, so that looks may come at any
time and slices may have any length.

**Opening.** A server warms up (compiled kernels, captured graphs, autotuning, filled batches) for a
time that nobody knows beforehand, and answers slower meanwhile. The window opens at the end of the
warm-up that was asked for unless the second half of what was seen still rises: Mann's test (Mann,
Econometrica 13, 1945; Kendall's S) over `SLICES` slices finds a trend, and Sen's slope (Sen, JASA
63, 1968) says that it raised the rate by more than `RISE_SHARE` meanwhile; or the last two slices
are above what the six before them would draw (Student's t); or next to nothing was heard in the
first half of it. Then it waits, slice by slice,
`LONGEST_WARMUP` times what was asked for at the most. Noise and stalls delay nothing, nor does a
rate that falls: no warm-up does that, and a window in which throughput falls is judged by its own
rule. (Events may become fewer while tokens do not, where a server puts more into each.)

**Ending.** With a precision, the window ends once the interval of the mean rate is within it:
batch means with a test of their correlation, as in Law & Carson (Operations Research 27, 1979).
`FINE` batches must have a lag-1 correlation of at most `CORRELATED`; the interval is Student's over
batches of them of several sizes, the widest of all counts: noise that lasts for seconds hides under
noise of single events where batches are short. Looks grow apart geometrically, and none is made
before the least of a window and as many requests as there are streams have passed.

What is rarer than a window's length nobody can know early: a window that saw no stall may end, one
that saw a stall may not, so that a stopped window reads too much. Simulated at 1 % of 60 s: 0.6 %
with stalls of 1 s every 30 s, 1.2 % with 2 s every 50 s; noise of 1 to 2 % that lasts for 10 s
under larger noise of events ends up to one window in twelve early and off by more than 1 %, noise
that lasts for 30 s one in nine.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from tuner.measuring.trend import change_share, kendall_s

LONGEST_WARMUP = 4
"""Times the warm-up that was asked for: a ramp that takes longer is what is measured."""
LONGEST_WINDOW = 4
"""Times the window that was asked for, where it has too few requests for a percentile."""
LEAST_WINDOW = 0.5
"""Of the window that was asked for, before precision may end it."""
SLICES = 8
RISE_S = 16
"""Kendall's S of eight slices is at least that large in 3 % of trendless cases. To be mistaken
costs a slice; to open too early costs a window."""
RISE_SHARE = 0.05
LATEST = 2
JUMP_T = 2.571
"""5 degrees of freedom at 97.5 %, one-sided: of the slices before the latest."""
LEAST_EVENTS = 5
"""In a slice on average: with fewer, a single event is a rise. They are waited for, and where they
do not come nothing is held against the warm-up."""
BEGUN_SHARE = 0.05
"""Of what came in the second half of the time since the beginning: less than it in the first half
is a server that only just began, however steady it is since."""
FINE = 64
CORRELATED = 0.4
STUDENT_T = {16: 2.602, 8: 2.998, 4: 4.541}
"""Of so many batches, one degree of freedom less: 98 %, two-sided. To look several times finds
luck, which 95 % would not leave room for."""
_LOOKS_APART = 1.1

Ended = Literal["time", "tight"]


class Pace:
    """One rung's warm-up and window, in seconds of the load's clock.

    `streams` is how many requests a closed loop keeps under way, 0 for an open one;
    `least_requests` how many the window must have for the percentiles that limits name. `stable`
    says, once the window is open, whether the rate had begun and no longer rose; `ended` what ended
    the window.
    """

    def __init__(
        self,
        *,
        warmup_s: float,
        window_s: float,
        streams: float,
        precision_percent: float | None = None,
        least_requests: int = 0,
    ) -> None:
        self._warmup_s = warmup_s
        self._window_s = window_s
        self._precision = None if precision_percent is None else precision_percent / 100
        self._least_requests = least_requests
        self._whole_requests = max(least_requests, streams)
        self._looks = _Looks()
        self._next_test_s = warmup_s
        self._start_s: float | None = None
        self.stable = True
        self.ended: Ended = "time"

    @property
    def longest_warmup_s(self) -> float:
        """When the window opens whatever the server does."""
        return LONGEST_WARMUP * self._warmup_s

    def opens(self, at_s: float, events: int) -> bool:
        """Whether the window may open now, `events` having come since the load began at zero."""
        self._looks.add(at_s, events)
        if at_s < self._next_test_s:
            return False
        self._next_test_s = at_s + at_s / 2 / SLICES
        seen = self._looks.slices(at_s / 2, at_s, SLICES)
        enough = sum(seen) >= LEAST_EVENTS * SLICES
        self.stable = self._begun(at_s) and not (enough and (rises(seen) or jumps(seen)))
        return (enough and self.stable) or at_s >= self.longest_warmup_s

    def _begun(self, at_s: float) -> bool:
        """Whether more than next to nothing came in the first half of the time so far."""
        first, second = self._looks.slices(0, at_s, 2)
        return not self._warmup_s or first > BEGUN_SHARE * second

    def opened(self, at_s: float, events: int) -> None:
        """The window is open from now on."""
        self._start_s = at_s
        self._looks = _Looks()
        self._looks.add(at_s, events)
        self._next_test_s = at_s + LEAST_WINDOW * self._window_s

    def ends(self, at_s: float, events: int, requests: int) -> bool:
        """Whether the window may end now; `requests` began and came to their end inside it."""
        if self._start_s is None:
            return False
        self._looks.add(at_s, events)
        passed_s = at_s - self._start_s
        if passed_s >= self._window_s:
            enough = requests >= self._least_requests
            return enough or passed_s >= LONGEST_WINDOW * self._window_s
        if self._precision is None or at_s < self._next_test_s or requests < self._whole_requests:
            return False
        self._next_test_s = self._start_s + _LOOKS_APART * passed_s
        if not tight(self._looks.slices(self._start_s, at_s, FINE), self._precision):
            return False
        self.ended = "tight"
        return True


def rises(slices: Sequence[float]) -> bool:
    """Whether a rate rises all along, surely and by more than `RISE_SHARE` in all."""
    return kendall_s(slices) >= RISE_S and change_share(slices) > RISE_SHARE


def jumps(slices: Sequence[float]) -> bool:
    """Whether the latest slices are surely, and by more than `RISE_SHARE`, above all before."""
    before, latest = slices[:-LATEST], slices[-LATEST:]
    above = fmean(latest) - fmean(before)
    error = stdev(before) * sqrt(1 / len(before) + 1 / len(latest))
    return above > max(RISE_SHARE * fmean(slices), JUMP_T * error)


def tight(fine: Sequence[float], precision: float) -> bool:
    """Whether the mean of so many batches is known to that share of it, at every scale."""
    mean = fmean(fine)
    if mean <= 0 or _lag_1(fine) > CORRELATED:
        return False
    return all(_error(fine, number) <= precision * mean for number in STUDENT_T)


def _error(fine: Sequence[float], number: int) -> float:
    """Half the interval of the mean, of so many batches."""
    each = len(fine) // number
    coarse = [fmean(fine[n * each : (n + 1) * each]) for n in range(number)]
    return STUDENT_T[number] * stdev(coarse) / sqrt(number)


def _lag_1(values: Sequence[float]) -> float:
    """The correlation of neighbours; 0 where nothing varies."""
    mean = fmean(values)
    off = [value - mean for value in values]
    power = sum(one * one for one in off)
    return sum(one * other for one, other in pairwise(off)) / power if power else 0


class _Looks:
    """A count that only grows, seen at some instants."""

    def __init__(self) -> None:
        self._at_s: list[float] = [0.0]
        self._counts: list[int] = [0]

    def add(self, at_s: float, count: int) -> None:
        """One more look, later than all before."""
        self._at_s.append(at_s)
        self._counts.append(count)

    def slices(self, since_s: float, until_s: float, number: int) -> list[float]:
        """What was counted in each of so many equal slices, straight lines between the looks."""
        step_s = (until_s - since_s) / number
        marks = [self._count(since_s + n * step_s) for n in range(number + 1)]
        return [after - before for before, after in pairwise(marks)]

    def _count(self, at_s: float) -> float:
        place = min(bisect_left(self._at_s, at_s), len(self._at_s) - 1)
        if place == 0:
            return self._counts[0]
        before_s, after_s = self._at_s[place - 1], self._at_s[place]
        before, after = self._counts[place - 1], self._counts[place]
        share = (at_s - before_s) / (after_s - before_s) if after_s > before_s else 1.0
        return before + min(max(share, 0.0), 1.0) * (after - before)
