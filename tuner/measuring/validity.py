"""May a rung's numbers be believed? One function a rule, each with both numbers and advice. Pure.

A doubt either voids the rung or is a remark beside it. Rules look at what the load generator saw
of itself (`observing`), at what it measured and at what the machine did; none looks at whether the
server is fast. Effects void: load that was not offered, values that are too few, a server that had
not settled. Causes alone (a busy client, one that waits for a core) are remarks until they are
beyond reason, since the kernel's receive stamps keep the client's own delay out of every number.

Shares are held against the default band inside which an effect counts as none, 3 %: what may move
a number by a third of it is allowed, and a ratio of two launches shows less.
"""

from collections.abc import Callable, Sequence

from tuner.definitions.slo import Slo
from tuner.measuring.client_rules import (
    client_cpu,
    client_wait,
    lateness,
    reached,
    starved,
    together,
    trial_lateness,
)
from tuner.measuring.machine_rules import memory, shared, throttled
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.open_rules import (
    keeps_up,
    offered,
    sent_late,
    trial_offered,
    trial_sent_late,
)
from tuner.measuring.window_rules import (
    drift,
    errors,
    output,
    percentiles,
    priming,
    requests,
    warm_up,
)

Rule = Callable[[RungMeasurement, Observed, Sequence[Slo]], list[Doubt]]

RULES: tuple[Rule, ...] = (
    errors,
    requests,
    percentiles,
    output,
    lateness,
    client_cpu,
    client_wait,
    together,
    reached,
    offered,
    sent_late,
    keeps_up,
    priming,
    warm_up,
    drift,
    throttled,
    shared,
    memory,
)
TRIAL_RULES: tuple[Rule, ...] = (
    percentiles,
    trial_lateness,
    client_cpu,
    starved,
    together,
    reached,
    trial_offered,
    trial_sent_late,
    keeps_up,
    priming,
    warm_up,
    drift,
    throttled,
    shared,
    memory,
)
"""In a trial errors and short answers are the configuration's own doing, for which it is refused;
throughput needs no request to come to its end; and noise is what launches are repeated for."""


def doubts(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo] = ()) -> list[Doubt]:
    """All that speaks against a rung's numbers, what voids them first; where every request failed
    that alone, since the rest follows from it."""
    if rung.requests_failed and not rung.requests_completed:
        return errors(rung, seen, slos)
    return _asked(RULES, rung, seen, slos)


def trial_doubts(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo] = ()) -> list[Doubt]:
    """What speaks against a rung of a launch whose configuration is on trial."""
    return _asked(TRIAL_RULES, rung, seen, slos)


def _asked(
    rules: Sequence[Rule], rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]
) -> list[Doubt]:
    found = [doubt for rule in rules for doubt in rule(rung, seen, slos)]
    return sorted(found, key=lambda doubt: not doubt.voids)
