"""Rules about an open loop: was it sent as it was due, and did the server keep up with it?"""

from collections.abc import Sequence

from tuner.definitions.slo import Slo
from tuner.measuring.client_rules import LATE_SHARE
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt, Observed

LEFT_OUT_SHARE = 0.01
AT_THE_EDGE = 2
"""So many may be due a moment before the window ends and be sent a moment after it."""


def offered(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """What was due was sent: what waits for the client, or is not sent at all, is no load."""
    load = rung.open_load
    if load is None or load.late_out == 0:
        return []
    share = load.late_out / load.due
    if not load.unsent and (share <= LEFT_OUT_SHARE or load.late_out <= AT_THE_EDGE):
        return []
    limit = 0.0 if load.unsent else LEFT_OUT_SHARE
    waited = f", {load.unsent} of them never, since so many others waited" if load.unsent else ""
    return [
        Doubt.of(
            "offered",
            rung.said,
            share,
            limit,
            f"{load.late_out} of {load.due} requests were not sent while they were due{waited}: "
            f"{load.due_rps:.4g} a second were offered and {load.sent_rps:.4g} sent",
            "The server answers too few: lower the rate, or raise ulimit -n here."
            if load.unsent
            else "Give the client a core of its own, or lower the rate.",
        )
    ]


def trial_offered(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """What was due was sent, but for what a configuration answers too slowly to let in: that is its
    own doing, and stands in its throughput and its latencies."""
    load = rung.open_load
    return [] if load is None or load.unsent else offered(rung, seen, slos)


def sent_late(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Requests are sent when they are due: what the client was late is in every latency."""
    load = rung.open_load
    if load is None or load.late_share is None or load.late_share <= LATE_SHARE:
        return []
    return [
        Doubt.of(
            "lateness",
            rung.said,
            load.late_share,
            LATE_SHARE,
            f"requests were sent {load.late_ms:.3g} ms late on average (p99 "
            f"{load.late_p99_ms:.3g} ms), {load.late_share:.1%} of the time that they took, at "
            f"most {LATE_SHARE:.0%} may be",
            "Give the client a core of its own, or run it on another machine.",
        )
    ]


def keeps_up(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The server answers as many as come: where more and more wait, a latency says how long one
    looked. A remark, since that is the server's own doing."""
    load = rung.open_load
    if load is None or not load.grows:
        return []
    return [
        Doubt.of(
            "keeps_up",
            rung.said,
            load.growth_rps,
            0.0,
            f"the server does not keep up: of {load.due_rps:.4g} requests a second it answered "
            f"{load.answered_rps:.4g}, and those under way grew from {load.under_way_first:.0f} to "
            f"{load.under_way_last:.0f} in the window",
            "Latencies depend on how long one looks: read throughput here, and latencies at a "
            "lower rate.",
            voids=False,
        )
    ]
