"""Rules about the machine: did it run at its own clocks, for this server alone, with memory left?

What observers could not ask raises no doubt.
"""

from collections.abc import Sequence

from tuner.definitions.slo import Slo
from tuner.measuring.machine import BRAKES, MachineUse
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.observed import Doubt, Observed

BRAKE_SHARE = 0.05
"""Of a window, with clocks held down by heat or supply: at half the clock, which a hardware
slowdown means, it costs 2.5 %."""
SWAP_BYTES_S = 1_000_000
"""250 pages a second, each of 0.1 ms on a good disk: 2.5 % of one core's time."""
STALL_SHARE = 0.05
"""Of a window, in which some task, not necessarily the server's, waited for memory."""
LEAST_MEMORY_SHARE = 0.02


def throttled(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """No GPU was slowed down by heat or by its supply; the cap on its power is no such brake."""
    shares = {why: rung.machine.throttled.get(why, 0.0) for why in BRAKES} if rung.machine else {}
    why = max(shares, key=lambda one: shares[one], default=None)
    if why is None or not shares[why]:
        return []
    return [
        Doubt.of(
            "throttled",
            rung.said,
            shares[why],
            BRAKE_SHARE,
            f"a GPU was slowed down ({why}) in {shares[why]:.0%} of the window, at most "
            f"{BRAKE_SHARE:.0%} may be",
            "See to its cooling and its power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE.",
            voids=shares[why] > BRAKE_SHARE,
        )
    ]


def shared(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """Nobody else computed on the GPUs."""
    pids = rung.machine.foreign_pids if rung.machine else []
    if not pids:
        return []
    named = ", ".join(map(str, pids))
    return [
        Doubt.of(
            "shared",
            rung.said,
            len(pids),
            0,
            f"{len(pids)} foreign processes computed on its GPUs (pid {named}), none may",
            "Find out whose they are (ps -fp PID), and wait until they have ended.",
        )
    ]


def memory(rung: RungMeasurement, seen: Observed, slos: Sequence[Slo]) -> list[Doubt]:
    """The host neither swapped nor stalled for want of memory; that little is left is a remark."""
    use = rung.machine
    if use is None:
        return []
    return [*_swapped(rung, use), *_stalled(rung, use), *_little_left(rung, use)][:1]


def _swapped(rung: RungMeasurement, use: MachineUse) -> list[Doubt]:
    bytes_s = use.swapped_bytes_s or 0.0
    if bytes_s <= SWAP_BYTES_S:
        return []
    said = f"the host swapped {bytes_s / 1e6:.1f} MB/s, at most {SWAP_BYTES_S / 1e6:.0f} may be"
    return [Doubt.of("memory", rung.said, bytes_s, SWAP_BYTES_S, said, _MAKE_ROOM)]


def _stalled(rung: RungMeasurement, use: MachineUse) -> list[Doubt]:
    share = use.memory_stall_share or 0.0
    if share <= STALL_SHARE:
        return []
    said = f"tasks waited for memory in {share:.0%} of the window, at most {STALL_SHARE:.0%} may be"
    return [Doubt.of("memory", rung.said, share, STALL_SHARE, said, _MAKE_ROOM)]


def _little_left(rung: RungMeasurement, use: MachineUse) -> list[Doubt]:
    if use.available_memory_mb is None or not use.host_memory_mb:
        return []
    share = use.available_memory_mb / use.host_memory_mb
    if share >= LEAST_MEMORY_SHARE:
        return []
    said = f"only {use.available_memory_mb:.0f} MB of the host's memory were left ({share:.1%})"
    return [Doubt.of("memory", rung.said, share, LEAST_MEMORY_SHARE, said, _MAKE_ROOM, voids=False)]


_MAKE_ROOM = "Stop what else takes memory here, or let the configuration take less."
