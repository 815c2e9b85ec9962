"""Looks of a window → what the machine and the engine did in it. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from tuner.engines.metric_names import MetricNames
from tuner.hosts.gpu_use import GpuLook
from tuner.hosts.kernel_counts import PAGE_BYTES
from tuner.measuring.machine import MachineUse, Throttle
from tuner.measuring.measurement import EngineLoad
from tuner.observers.watcher import Look, Told

Counted = Callable[[Look], float | None]

LEAST_COVERED = 0.9
"""The share of a window that must lie between looks at a count: nobody saw the rest."""


def machine_use(told: Told, *, since_s: float, until_s: float) -> MachineUse:
    """What the machine did in the window [since_s, until_s], in real seconds.

    What counts up (energy, core time, swap, waiting for memory) is interpolated at the window's
    edges between the looks around them, and unknown where it was seen for too little of the window;
    what is of a moment is averaged over the looks inside, or
    taken from the last one where none is inside.
    """
    window = _Window(told.looks, since_s, until_s)
    energy_j = window.counted(_energy_j)
    power_w = window.mean(_sum_of(lambda gpu: gpu.power_w))
    if energy_j is not None and window.length_s > 0:
        power_w = energy_j / window.length_s
    elif power_w is not None:
        energy_j = power_w * window.length_s
    busy, all_ticks = window.counted(_busy_ticks), window.counted(_all_ticks)
    swapped_pages = window.counted(lambda look: look.swapped_pages if look.memory else None)
    stall_s = window.counted(lambda look: look.stall_s)
    return MachineUse(
        power_w=power_w,
        energy_j=energy_j,
        clocks_mhz=window.mean(_mean_of(lambda gpu: gpu.clock_mhz)),
        throttled=window.throttled(),
        temperature_c=window.most(_most_of(lambda gpu: gpu.temperature_c)),
        memory_mb=window.most(_sum_of(lambda gpu: gpu.memory_mb)),
        utilisation=window.mean(_mean_of(lambda gpu: gpu.utilisation)),
        foreign_pids=sorted({pid for look in window.inside for pid in look.foreign}),
        host_cpu_share=_share(busy, all_ticks),
        host_memory_mb=window.most(lambda look: look.memory and look.memory.total_gb * 1000),
        available_memory_mb=window.least(
            lambda look: look.memory and look.memory.available_gb * 1000
        ),
        swapped_bytes_s=_ratio(_bytes(swapped_pages), window.length_s),
        memory_stall_share=_ratio(stall_s, window.length_s),
        unobserved=told.unobserved,
    )


def engine_load(
    told: Told, names: MetricNames, *, since_s: float, until_s: float
) -> EngineLoad | None:
    """What the engine counted in the window, over its ranks and replicas; None where it did not
    say how many requests run and wait."""
    window = _Window(told.looks, since_s, until_s)
    if not window.within:
        return None
    running = window.values(_sum_named(names.running))
    queued = window.values(_sum_named(names.queued))
    if not running or len(queued) != len(running):
        return None
    usage = window.values(_named(names.kv_usage, fmean))
    preempted = window.events(_named(names.preempted, sum))
    return EngineLoad(
        running_mean=fmean(running),
        running_max=max(running),
        queued_mean=fmean(queued),
        queued_max=max(queued),
        samples=len(running),
        kv_usage_mean=fmean(usage) if usage else None,
        kv_usage_max=max(usage) if usage else None,
        preempted=None if preempted is None else round(preempted),
        prefix_found_share=_ratio(
            window.events(_named(names.found, sum)), window.events(_named(names.looked_up, sum))
        ),
    )


class _Window:
    """The looks of a window, and those around it."""

    def __init__(self, looks: Sequence[Look], since_s: float, until_s: float) -> None:
        self.length_s = max(0.0, until_s - since_s)
        self._looks, self._since_s, self._until_s = looks, since_s, until_s
        self.within = [look for look in looks if since_s < look.at_s <= until_s]
        self.inside = self.within or list(looks[-1:])

    def values(self, counted: Counted) -> list[float]:
        """Of the looks inside, where there is one."""
        return [value for look in self.inside if (value := counted(look)) is not None]

    def mean(self, counted: Counted) -> float | None:
        """Over the looks inside."""
        values = self.values(counted)
        return fmean(values) if values else None

    def most(self, counted: Counted) -> float | None:
        """The highest of the looks inside."""
        return max(self.values(counted), default=None)

    def least(self, counted: Counted) -> float | None:
        """The lowest of the looks inside."""
        return min(self.values(counted), default=None)

    def counted(self, counted: Counted) -> float | None:
        """By how much a quantity grew from the window's start to its end, at the pace of the part
        that was seen; None where that is too little of the window, or it began anew."""
        grew, covered_s = self._grew(counted)
        return None if grew is None else grew * self.length_s / covered_s

    def events(self, counted: Counted) -> float | None:
        """How many events were counted in the part of the window that was seen: what happened
        beside it is never made up. None where that part is too small, or the count began anew."""
        return self._grew(counted)[0]

    def _grew(self, counted: Counted) -> tuple[float | None, float]:
        """By how much a count grew in so many seconds of the window."""
        seen = [(look.at_s, v) for look in self._looks if (v := counted(look)) is not None]
        if len(seen) < 2 or any(after < before for (_, before), (_, after) in pairwise(seen)):
            return None, 0.0
        covered_s = min(seen[-1][0], self._until_s) - max(seen[0][0], self._since_s)
        if covered_s <= 0 or covered_s < LEAST_COVERED * self.length_s:
            return None, 0.0
        return _at(seen, self._until_s) - _at(seen, self._since_s), covered_s

    def throttled(self) -> dict[Throttle, float]:
        """The share of the looks at which a GPU gave each reason."""
        reasons = [{why for gpu in look.gpus for why in gpu.throttled} for look in self.inside]
        known: list[Throttle] = [*_THROTTLES]
        shares = {why: fmean(why in given for given in reasons) for why in known if reasons}
        return {why: share for why, share in shares.items() if share}


_THROTTLES: tuple[Throttle, ...] = (
    "power_cap",
    "sw_thermal",
    "hw_thermal",
    "power_brake",
    "hw_slowdown",
)


def _at(seen: Sequence[tuple[float, float]], at_s: float) -> float:
    """The count at that time, on the line between the looks around it."""
    for (before_s, before), (after_s, after) in pairwise(seen):
        if at_s <= after_s:
            share = max(0.0, at_s - before_s) / (after_s - before_s)
            return before + share * (after - before)
    return seen[-1][1]


def _of_gpus(
    asked: Callable[[GpuLook], float | None], joined: Callable[[Iterable[float]], float]
) -> Counted:
    def found(look: Look) -> float | None:
        values = [value for gpu in look.gpus if (value := asked(gpu)) is not None]
        return joined(values) if values and len(values) == len(look.gpus) else None

    return found


def _sum_of(asked: Callable[[GpuLook], float | None]) -> Counted:
    return _of_gpus(asked, sum)


def _mean_of(asked: Callable[[GpuLook], float | None]) -> Counted:
    return _of_gpus(asked, fmean)


def _most_of(asked: Callable[[GpuLook], float | None]) -> Counted:
    return _of_gpus(asked, max)


_energy_j = _sum_of(lambda gpu: gpu.energy_j)


def _busy_ticks(look: Look) -> float | None:
    return None if look.ticks is None else look.ticks.total - look.ticks.idle


def _all_ticks(look: Look) -> float | None:
    return None if look.ticks is None else look.ticks.total


def _sum_named(name: str) -> Counted:
    return _named((name,), sum)


def _named(names: Sequence[str], joined: Callable[[Iterable[float]], float]) -> Counted:
    """The samples of the first of these metrics that is there."""

    def found(look: Look) -> float | None:
        metrics = look.metrics or {}
        values: list[float] = next((metrics[name] for name in names if metrics.get(name)), [])
        return joined(values) if values else None

    return found


def _bytes(pages: float | None) -> float | None:
    return None if pages is None else pages * PAGE_BYTES


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _share(value: float | None, of: float | None) -> float | None:
    share = _ratio(value, of)
    return None if share is None else min(share, 1.0)  # interpolation is not exact
