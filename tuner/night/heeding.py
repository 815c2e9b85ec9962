"""How a void rung is measured again: as what spoke against it asks for."""

import os
from collections.abc import Iterable
from dataclasses import replace

from tuner.load import RungPlan
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt
from tuner.night.silence import SILENCE

LONGER = 2
"""Times the warm-up or the window, where either was too short."""
_SHORT_WARMUP = frozenset({"warm_up", "drift", SILENCE})
_SHORT_WINDOW = frozenset({"percentiles", "requests", SILENCE})
_FULL_CLIENT = frozenset({"client_cpu", "together"})
"""A client that only waits for a core has too few of them already: one process more would wait
beside it."""


def heeded(
    plan: RungPlan, doubts: Iterable[Doubt], *, rungs: int, idle_cores: float = 0.0
) -> RungPlan:
    """The second attempt at a rung of a ladder of so many, on a machine with so many cores to
    spare.

    A server that had not settled gets a longer warm-up, a percentile of too few requests a longer
    window, one that gave no token both, a client that fills its core one process more where there
    is a core for it. It is the same load, at the same times; but no prompt of the first attempt is
    asked again: the server may remember it.
    """
    broken = {doubt.rule for doubt in doubts if doubt.voids}
    wants_more = bool(broken & _FULL_CLIENT) and idle_cores >= 1
    return replace(
        plan,
        warmup_s=plan.warmup_s * (LONGER if broken & _SHORT_WARMUP else 1),
        window_s=plan.window_s * (LONGER if broken & _SHORT_WINDOW else 1),
        processes=plan.processes + wants_more,
        prompt_offset=plan.prompt_offset + rungs,
    )


def idle_cores(rung: RungMeasurement) -> float:
    """Cores of the machine that nobody used while a rung was measured; 0 where nobody saw."""
    if rung.machine is None or rung.machine.host_cpu_share is None:
        return 0.0
    return (1 - rung.machine.host_cpu_share) * (os.cpu_count() or 1)
