"""What a surface makes of one launch: its resolved arguments, speeds and misfortunes. Pure."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tuner.definitions.conditions import holds
from tuner.definitions.models import Value
from tuner.definitions.surface import Conditional, PerConcurrency, Phase, Surface

PHASES: Sequence[Phase] = (
    "arguments", "distributed", "weights", "kv-cache", "graphs", "warmup",
)  # fmt: skip


_TOSSED_SHARE = 0.3

Entry = TypeVar("Entry", bound=Conditional)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The arguments an engine runs with, and the warnings it logged while it settled them."""

    arguments: dict[str, Value]
    warnings: tuple[str, ...]


def resolve(surface: Surface, arguments: Mapping[str, Value], env: Mapping[str, str]) -> Resolved:
    """What becomes of the arguments: nulls decided, then overrides in the file's order."""
    settled = dict(arguments)
    for name, value in surface.resolved.items():
        if settled.get(name) is None:
            settled[name] = value
    if settled.get("max-running-requests") is None:
        settled["max-running-requests"] = surface.max_running_requests
    warnings = []
    for override in surface.overrides:
        if not holds(override.when, {**env, **settled}):
            continue
        for name, value in override.set.items():
            refers = isinstance(value, str) and value.startswith("$")
            settled[name] = settled.get(str(value)[1:]) if refers else value
        if override.log:
            warnings.append(override.log)
    return Resolved(arguments=settled, warnings=tuple(warnings))


class Behaviour:
    """One launch of a surface: `settings` are its resolved arguments and its environment.

    The noise of a launch is drawn from the surface's seed and the launch's `nonce`: the same two
    give the same launch again.
    """

    def __init__(self, surface: Surface, settings: Mapping[str, Value], nonce: str) -> None:
        self.surface = surface
        self.settings = settings
        self._random = random.Random(f"{surface.seed}/{nonce}")  # noqa: S311 (noise, no secret)
        self._rounding = random.Random(f"{nonce}")  # noqa: S311 - of its own: speed stays as it is
        noise = surface.noise
        launch = self._lognormal(noise.launch_sd)
        effects = self.matching(surface.effects)
        self._levels = [math.log(point.concurrency) for point in surface.table]
        self._throughput: list[float] = []
        self._ttft: list[float] = []
        for point in surface.table:
            speed = launch * self._lognormal(noise.point_sd)
            for effect in effects:
                speed *= factor(effect.throughput, point.concurrency)
            slowness = math.prod(factor(effect.ttft, point.concurrency) for effect in effects)
            self._throughput.append(math.log(point.output_tok_s * speed))
            self._ttft.append(math.log(point.ttft_ms / 1000.0 * slowness))

    @property
    def pool(self) -> int:
        """How many requests run at a time; the rest wait."""
        return int(self.settings.get("max-running-requests") or self.surface.max_running_requests)

    def matching(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries of the surface that hold for this launch."""
        return [entry for entry in entries if holds(entry.when, self.settings)]

    def output_tok_s(self, running: int) -> float:
        """Output tokens per surface second while `running` requests run, without in-run noise."""
        return math.exp(_interpolate(self._levels, self._throughput, math.log(max(running, 1))))

    def ttft_s(self, running: int) -> float:
        """Surface seconds from being scheduled to the first token, without noise."""
        return math.exp(_interpolate(self._levels, self._ttft, math.log(max(running, 1))))

    def run_factor(self) -> float:
        """The next stretch's factor on throughput: in-run noise."""
        return self._lognormal(self.surface.noise.run_sd)

    def ttft_factor(self) -> float:
        """The next request's factor on its first-token time."""
        return self._lognormal(self.surface.noise.ttft_sd)

    def drift_factor(self, wall_s: float) -> float:
        """Where the night's wave stands at a time of the wall clock (real seconds)."""
        drift = self.surface.drift
        if drift is None:
            return 1.0
        turns = wall_s * self.surface.time_scale / drift.period_s
        return 1.0 + drift.percent / 100.0 * math.sin(2 * math.pi * turns)

    def toss(self) -> bool:
        """Which of two tokens that tie is said: rounding differs from launch to launch and from
        batch to batch."""
        return self._rounding.random() < _TOSSED_SHARE

    def hit(self, share: float) -> bool:
        """Whether something that befalls a share of the requests befalls this one."""
        return self._random.random() < share

    def weight_gb(self) -> float:
        """GB of weights a GPU."""
        memory = self.surface.memory
        return next((entry.gb for entry in self.matching(memory.weights)), memory.weight_gb)

    def _lognormal(self, sd: float) -> float:
        """A factor with mean 1 and relative standard deviation `sd`."""
        variance = math.log1p(sd * sd)
        return math.exp(self._random.gauss(-variance / 2, math.sqrt(variance))) if sd else 1.0


def factor(per_concurrency: PerConcurrency, concurrency: int) -> float:
    """The factor at a concurrency: log-linear between the given ones, flat outside them."""
    if not isinstance(per_concurrency, dict):
        return per_concurrency
    levels = sorted(per_concurrency)
    return _interpolate(
        [math.log(level) for level in levels],
        [per_concurrency[level] for level in levels],
        math.log(concurrency),
    )


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    if x <= xs[0]:
        return ys[0]
    for (left, low), (right, high) in zip(
        zip(xs, ys, strict=True), zip(xs[1:], ys[1:], strict=True), strict=False
    ):
        if x <= right:
            return low + (high - low) * (x - left) / (right - left)
    return ys[-1]
