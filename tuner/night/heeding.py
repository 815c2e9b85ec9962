"""How a void rung is measured again: as what spoke against it asks for. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from tuner.load import RungPlan
from tuner.measuring.observed import Doubt

LONGER = 2
"""Times the warm-up or the window, where either was too short."""
_SHORT_WARMUP = frozenset({"warm_up", "drift"})
_SHORT_WINDOW = frozenset({"percentiles", "requests"})
_BUSY_CLIENT = frozenset({"client_cpu", "client_wait", "lateness", "together"})


def heeded(plan: RungPlan, doubts: Iterable[Doubt], *, rungs: int) -> RungPlan:
    """The second attempt at a rung of a ladder of so many.

    A server that had not settled gets a longer warm-up, a percentile of too few requests a longer
    window, a client that was too busy one process more. No prompt of the first attempt is asked
    again: the server may remember it.
    """
    broken = {doubt.rule for doubt in doubts if doubt.voids}
    return replace(
        plan,
        warmup_s=plan.warmup_s * (LONGER if broken & _SHORT_WARMUP else 1),
        window_s=plan.window_s * (LONGER if broken & _SHORT_WINDOW else 1),
        processes=plan.processes + (1 if broken & _BUSY_CLIENT else 0),
        rung_index=plan.rung_index + rungs,
    )
