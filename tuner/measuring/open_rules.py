"""Rules about an open loop: was it sent as it was due, and did the server keep up with it?"""

from collections.abc import Sequence

from tuner.definitions.slo import Slo
from tuner.measuring.client_rules import LATE_SHARE, TRIAL_LATE_SHARE
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.open_load import OpenLoad

LEFT_OUT_SHARE = 0.01
AT_THE_EDGE = 2
"""So many may be due a moment before the window ends and be sent a moment after it."""
_ROOM = "Give the client a core of its own, or lower the rate."


def offered(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """What was due was sent: what waits for the client, or is not sent at all, is no load."""
    load = rung.open_load
    if load is None or not (load.unsent or _left_out(load.late_out, load)):
        return []
    never = f", {load.unsent} of them never" if load.unsent else ""
    return [
        Doubt.of(
            "offered",
            rung.said,
            load.late_out / load.due,
            0.0 if load.unsent else LEFT_OUT_SHARE,
            f"{load.late_out} of {load.due} requests were not sent while they were due{never}: "
            f"{load.due_rps:.4g} a second were offered and {load.sent_rps:.4g} sent",
            "The server lets too few in: lower the rate, or raise ulimit -n here."
            if load.unsent
            else _ROOM,
        )
    ]


def trial_offered(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """What was due was sent, but for what a configuration answers too slowly to let in: that is its
    own doing, and stands in its throughput and in what is under way."""
    load = rung.open_load
    if load is None or not _left_out(load.late_out - load.unsent, load):
        return []
    return offered(rung, seen, slos)


def sent_late(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Requests are sent when they are due: what the client was late is in every latency, and TTFT
    is the shortest of them."""
    return _late(rung, slos, LATE_SHARE)


def trial_sent_late(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Requests of a trial are sent as late as those of the launches that it is held against."""
    return _late(rung, slos, TRIAL_LATE_SHARE)


def _left_out(late_out: int, load: OpenLoad) -> bool:
    """Whether that many are more than an edge."""
    return late_out > max(AT_THE_EDGE, LEFT_OUT_SHARE * load.due)


def _late(rung: RungMeasurement, slos: Sequence[Slo], limit: float) -> list[Doubt]:
    load = rung.open_load
    if load is None:
        return []
    shares = [] if load.late_share is None else [(load.late_share, limit, "the mean TTFT")]
    shares += [
        (load.late_p99_ms / slo.limit, TRIAL_LATE_SHARE, f"what {slo} allows, the p99")
        for slo in slos
        if slo.metric == "ttft_ms" and slo.limit > 0
    ]
    worst = max(shares, key=lambda share: share[0] / share[1], default=None)
    if worst is None or worst[0] <= worst[1]:
        return []
    share, most, of = worst
    return [
        Doubt.of(
            "lateness",
            rung.said,
            share,
            most,
            f"requests were sent {load.late_ms:.3g} ms late on average (p99 "
            f"{load.late_p99_ms:.3g} ms), {share:.1%} of {of}, at most {most:.0%} may be",
            _ROOM,
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
