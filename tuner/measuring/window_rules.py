"""Rules about a window: did the server answer as asked, was it settled, is there enough to tell?"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from tuner.definitions.slo import LEAST_VALUES, Slo
from tuner.measuring.enough import too_few
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.trend import kendall_s

ERROR_SHARE = 0.01
SHORT_SHARE = 0.01
LEAST_REQUESTS = 2
DRIFT_SHARE = 0.05
DRIFT_T = 5.041
"""Student's t with 8 degrees of freedom at 99.9 %, two-sided: two halves of five slices each. A
night judges hundreds of windows."""
DRIFT_S = 35
"""Kendall's S of ten slices is as large, either way, in 0.1 % of trendless cases."""


def errors(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Failed requests: a server that refuses load looks faster to the requests that it takes."""
    sent = rung.requests_completed + rung.requests_failed
    share = rung.requests_failed / sent if sent else 0.0
    if not rung.requests_failed:
        return []
    return [
        Doubt.of(
            "errors",
            rung.said,
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
        Doubt.of(
            "requests",
            rung.said,
            rung.requests_completed,
            LEAST_REQUESTS,
            f"{rung.requests_completed} requests came to their end inside a window of "
            f"{rung.window_s:.3g} s, at least {LEAST_REQUESTS} must",
            "Raise window_s in the objective, or ask for fewer output_tokens.",
        )
    ]


def percentiles(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Enough values lie beyond each percentile: those of SLOs must, others are remarked upon."""
    few = [(slo, count) for slo in slos if (count := too_few(slo, rung)) is not None]
    found = {
        (slo.metric, slo.stat): Doubt.of(
            "percentiles",
            rung.said,
            count,
            needed,
            f"{slo.metric} {slo.stat} is of {count} values, an SLO on it needs {needed}",
            "Raise window_s in the objective, or set the SLO on a lower percentile.",
        )
        for slo, count in few
        if (needed := LEAST_VALUES.get(slo.stat or "", 1))
    }
    ttft, least = rung.ttft_ms, LEAST_VALUES["p99"]
    if found or ttft is None or ttft.count >= least:
        return [found[asked] for asked in sorted(found)]
    said = f"p99 of TTFT is of {ttft.count} values, {least} are needed"
    advice = "Read it as the largest value; a longer window_s shows more."
    return [Doubt.of("percentiles", rung.said, ttft.count, least, said, advice, voids=False)]


def output(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Answers are as long as they were asked to be: short ones make a server look fast."""
    share = seen.short / rung.requests_completed if rung.requests_completed else 0.0
    if share <= SHORT_SHARE:
        return []
    return [
        Doubt.of(
            "output",
            rung.said,
            share,
            SHORT_SHARE,
            f"{seen.short} of {rung.requests_completed} answers were shorter than asked "
            f"({share:.1%}, at most {SHORT_SHARE:.0%} may)",
            "The server does not heed ignore_eos: try the other --api.",
        )
    ]


def warm_up(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The server had settled when the window opened."""
    if seen.stable:
        return []
    took_s = seen.warmup_s or 0.0
    return [
        Doubt.of(
            "warm_up",
            rung.said,
            took_s,
            took_s,
            "throughput had hardly begun or still rose when the window opened, after "
            f"{took_s:.3g} s of warm-up",
            "Raise warmup_s in the objective: the server is not yet what it will be.",
        )
    ]


def priming(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The servers were asked before the load all that its prompts are to find known."""
    if seen.primed >= seen.primers:
        return []
    return [
        Doubt.of(
            "priming",
            rung.said,
            seen.primed,
            seen.primers,
            f"{seen.primed} of {seen.primers} prompts that the server was to know were answered "
            "before the load",
            "Read the server's log for what it refused; ask for fewer prompts or shorter ones.",
        )
    ]


def drift(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Both halves of the window agree: a server that still warms up is not what it will be.

    Means of the two halves' slices, the difference held against Welch's standard error; or a trend
    over all slices (Kendall's S), which makes the halves' own spread large.
    """
    half = len(seen.slice_tok_s) // 2
    first, second = seen.slice_tok_s[:half], seen.slice_tok_s[half:]
    if half < 2 or not any(seen.slice_tok_s):
        return []
    if not any(first):
        return [_drifted(rung, 1.0, f"{fmean(second):.4g} tok/s, the first none")]
    change = fmean(second) / fmean(first) - 1
    error = math.sqrt((stdev(first) ** 2 + stdev(second) ** 2) / half) / fmean(first)
    sure = abs(change) > DRIFT_T * error or abs(kendall_s(seen.slice_tok_s)) >= DRIFT_S
    if abs(change) <= DRIFT_SHARE or not sure:
        return []
    return [
        _drifted(
            rung,
            change,
            f"{fmean(second):.4g} tok/s, the first {fmean(first):.4g} ({change:+.1%}, at most "
            f"{DRIFT_SHARE:.0%} may be beyond noise)",
        )
    ]


def _drifted(rung: RungMeasurement, change: float, halves: str) -> Doubt:
    return Doubt.of(
        "drift",
        rung.said,
        change,
        DRIFT_SHARE,
        f"the second half of the window gave {halves}",
        "Raise warmup_s in the objective, or measure again now that the server is warm.",
    )
