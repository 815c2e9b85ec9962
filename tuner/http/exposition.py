"""Metrics as Prometheus' text has them. Standard library only, and cheap: read beside a load."""

import math
from typing import Any


def samples(metrics: str, *names: str) -> dict[str, list[float]]:
    """The values of all samples of each metric, one a rank or replica; none where it is not there.

    One pass without a pattern: it is read while tokens are being timed.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for line in metrics.splitlines():
        for name in names:
            if line.startswith(name):
                found[name] += _sample(line[len(name) :])
    return found


def gauges(metrics: str, *names: str) -> list[float | None]:
    """The sum of all samples of each metric, None where there is none."""
    return [sum(values) if values else None for values in samples(metrics, *names).values()]


def number(value: Any) -> float | None:
    """A finite number that a server said, None where it said anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _sample(rest: str) -> list[float]:
    """The value in what follows a metric's name; none where the name goes on."""
    words = rest[rest.rfind("}") + 1 :].split() if rest.startswith(("{", " ", "\t")) else []
    return [value for word in words[:1] if (value := number(word)) is not None]
