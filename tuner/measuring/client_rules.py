"""Rules about the client: was the load offered that was asked for, and did it hear in time?"""

from collections.abc import Sequence

from tuner.definitions.slo import Slo
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt, Observed

LATE_SHARE = 0.01
TRIAL_LATE_SHARE = 0.03
"""Of a request's time, spent between an answer's end and the next request on its stream: so much
less load is offered than was asked for. A night compares launches that are late alike: there as
much may be as the whole band, which a lateness must fill to look like an effect."""
CPU_SHARE = 0.95
UNSTAMPED_CPU_SHARE = 0.8
BUSY_SHARE = 0.5
"""Of one core, which is all that one event loop can use: above a half events begin to queue. Where
the kernel stamps what it receives, only a core that is full bends a number."""
WAIT_SHARE = 0.1
HINDERED_SHARE = 0.25
STARVED_SHARE = 0.75
"""Of the window, spent ready to run without a core to run on. Beside a busy loop on its own core a
client waits for half of it, and its stamps are right to a percent all the same: a night notes that
and goes on. At three quarters it has a core for a quarter of what it wants, and so has whatever
else of the host serves."""
TOGETHER_SHARE = 0.025
TOGETHER_TAIL_SHARE = 0.005
"""Of events, read with a later one: the gaps before and after each are guesses. One such event in
two hundred bends a gap in a hundred, the 99th percentile; one in forty bends the 95th."""
REACHED_SHARE = 0.95


def lateness(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Each stream asks again at once: a client that is late offers less load than it says."""
    return _late(rung, seen, LATE_SHARE)


def trial_lateness(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Streams of a trial ask again as soon as those of the launches that it is held against."""
    return _late(rung, seen, TRIAL_LATE_SHARE)


def _late(rung: RungMeasurement, seen: Observed, limit: float) -> list[Doubt]:
    if not seen.cycle_ms or seen.late_ms is None:
        return []
    share = seen.late_ms / seen.cycle_ms
    if share <= limit:
        return []
    return [
        Doubt.of(
            "lateness",
            rung.said,
            share,
            limit,
            f"streams asked again {seen.late_ms:.3g} ms late on average (p99 "
            f"{seen.late_p99_ms:.3g} ms), {share:.1%} of a request's {seen.cycle_ms:.4g} ms, at "
            f"most {limit:.0%} may be",
            "Give the client a core of its own, or run it on another machine.",
        )
    ]


def client_cpu(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The client itself had room: a full core stamps late and hides what the server could do."""
    if seen.cpu_share is None or seen.cpu_share <= BUSY_SHARE:
        return []
    limit = CPU_SHARE if seen.stamped else UNSTAMPED_CPU_SHARE
    return [
        Doubt.of(
            "client_cpu",
            rung.said,
            seen.cpu_share,
            limit,
            f"the client used {seen.cpu_share:.0%} of its core, {limit:.0%} are its limit",
            "Latencies may be the client's own: run fewer streams a client, on a faster core.",
            voids=seen.cpu_share > limit,
        )
    ]


def client_wait(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The client had a core when it needed one."""
    return _waited(rung, seen, HINDERED_SHARE if seen.stamped else WAIT_SHARE)


def starved(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The client of a trial had a core most of the time: a night goes on beside what else runs."""
    return _waited(rung, seen, STARVED_SHARE if seen.stamped else HINDERED_SHARE)


def _waited(rung: RungMeasurement, seen: Observed, limit: float) -> list[Doubt]:
    if seen.wait_share is None or seen.wait_share <= WAIT_SHARE:
        return []
    return [
        Doubt.of(
            "client_wait",
            rung.said,
            seen.wait_share,
            limit,
            f"the client waited for a core in {seen.wait_share:.0%} of the window, at most "
            f"{limit:.0%} may be",
            "Stop what else runs here, or pin the client: taskset -c N tuner ...",
            voids=seen.wait_share > limit,
        )
    ]


def together(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Each event has its own time of arrival, where gaps have a limit or the client is busy.

    Who reads several at once cannot tell whether they came so, and a gap of 0 is none that a user
    sees.
    """
    limited = [slo.stat for slo in slos if slo.metric == "itl_ms"]
    busy = (seen.cpu_share or 0) > BUSY_SHARE or (seen.wait_share or 0) > WAIT_SHARE
    tail = not limited or "p99" in limited or "max" in limited
    limit = TOGETHER_TAIL_SHARE if tail else TOGETHER_SHARE
    if not (limited or busy) or (seen.together or 0) <= limit:
        return []
    return [
        Doubt.of(
            "together",
            rung.said,
            seen.together or 0,
            limit,
            f"the client read {seen.together:.1%} of events with a later one, at most "
            f"{limit:.1%} may be",
            "Gaps between tokens are guesses: give the client a core of its own; where the server "
            "sends several at once, limit tpot_ms.",
            voids=bool(limited),
        )
    ]


def reached(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """As many requests were under way as the rung is named for.

    Streams wait on purpose after a failure: what then is missing is the server's own doing.
    """
    limit = 0.0 if rung.concurrency is None else REACHED_SHARE * rung.played
    if seen.in_flight >= limit or rung.requests_failed:
        return []
    return [
        Doubt.of(
            "reached",
            rung.said,
            seen.in_flight,
            limit,
            f"{seen.in_flight:.1f} requests were under way on average, at least {limit:.4g} must",
            "Streams could not connect or were late: see ulimit -n on both sides.",
        )
    ]
