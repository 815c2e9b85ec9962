"""Are there enough values to hold a limit against them? A percentile of three requests is none."""

from tuner.definitions.slo import LATENCIES, LEAST_VALUES, Slo
from tuner.measuring.measurement import Distribution, RungMeasurement

SURE_VALUES = 10
"""With so many, half of them beyond a limit speak for every percentile above the median: of a p90
that keeps its limit, five or more of ten lie beyond it in 0.2 % of cases."""


def values_of(slo: Slo, rung: RungMeasurement) -> Distribution | None:
    """The latencies that a limit is on; None where the window shows none, and for rates."""
    if slo.metric not in LATENCIES:
        return None
    found: Distribution | None = getattr(rung, slo.metric)
    return found


def too_few(slo: Slo, rung: RungMeasurement) -> int | None:
    """How many values there are, where they can neither keep nor break the limit; else None.

    Fewer than the percentile needs decide all the same where half of them are beyond it, or where
    nothing came to an end within a window that is longer than the limit itself.
    """
    if slo.metric not in LATENCIES:
        return None
    values = values_of(slo, rung)
    at_most = slo.op in ("<", "<=")
    if values is None:
        outlasted = slo.metric == "e2e_ms" and rung.window_s * 1000 > slo.limit
        return None if outlasted and at_most and rung.output_tok_s > 0 else 0
    if values.count >= LEAST_VALUES.get(slo.stat or "", 1):
        return None
    sure = at_most and values.count >= SURE_VALUES and not slo.met_by(values.p50)
    return None if sure else values.count
