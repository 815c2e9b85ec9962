"""The time of a load, which may run faster than the clock on the wall."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A load's clock: `time_scale` seconds of it are one of `perf_counter`, and it began at
    `origin_s` of that, which all processes of a machine share."""

    origin_s: float = 0.0
    time_scale: float = 1.0

    def at(self, real_s: float) -> float:
        """Seconds of the load's clock since it began."""
        return (real_s - self.origin_s) * self.time_scale

    def all_at(self, real_s: Iterable[float]) -> list[float]:
        """The same for many."""
        origin_s, scale = self.origin_s, self.time_scale
        return [(at_s - origin_s) * scale for at_s in real_s]


PERF_COUNTER = Clock()
