"""What the machine and the engine did beside a load, as rows that everything shows alike. Pure."""

from collections.abc import Callable, Iterable, Sequence

from tuner.measuring.machine import BRAKES
from tuner.measuring.measurement import RungMeasurement
from tuner.views.html import Html, element, table
from tuner.views.sides import Side
from tuner.views.words import number

Rows = list[tuple[str, list[str]]]
_Value = Callable[[RungMeasurement], float | None]


def known_rows(rungs: Sequence[RungMeasurement]) -> Rows:
    """A row for all that was seen at one rung at least, with a cell for each of them."""
    return _rows([[rung] for rung in rungs])


def unobserved(rungs: Iterable[RungMeasurement]) -> list[str]:
    """What could not be seen, each once."""
    said = (words for rung in rungs if rung.machine for words in rung.machine.unobserved)
    return list(dict.fromkeys(said))


def machine(ours: Side | None, best: Side | None, said: Callable[[float], str]) -> list[Html]:
    """The part of a report: what machines did under the baseline and under the best."""
    parts = [part for side in (ours, best) if side is not None for part in _of(side, said)]
    return parts or [element("p", "Nothing was observed.")]


def _of(side: Side, said: Callable[[float], str]) -> list[Html]:
    rungs = [rung for record in side.launches for rung in record.rungs]
    levels = sorted({rung.level for rung in rungs})
    rows = _rows([[rung for rung in rungs if rung.level == level] for level in levels])
    missing = [element("p", f"{words}.", class_="dim") for words in unobserved(rungs)]
    if not rows:
        return missing
    heads = [side.name, *(f"at {said(level)}" for level in levels)]
    return [table(heads, [[name, *cells] for name, cells in rows]), *missing]


def _rows(groups: Sequence[Sequence[RungMeasurement]]) -> Rows:
    rows: Rows = []
    for name, value, worded in _SEEN:
        cells = [_span(map(value, group), worded) for group in groups]
        if any(cells):
            rows.append((name, [cell or "-" for cell in cells]))
    return rows


def _span(values: Iterable[float | None], worded: Callable[[float], str]) -> str:
    """From the least to the most; empty where nothing is known."""
    known = [value for value in values if value is not None]
    ends = [worded(min(known)), worded(max(known))] if known else []
    return " to ".join(dict.fromkeys(ends))


def _share(value: float) -> str:
    return f"{value:.0%}"


def _machine(name: str) -> _Value:
    def value(rung: RungMeasurement) -> float | None:
        found: float | None = getattr(rung.machine, name) if rung.machine else None
        return found

    return value


def _engine(name: str) -> _Value:
    def value(rung: RungMeasurement) -> float | None:
        found: float | None = getattr(rung.engine_load, name) if rung.engine_load else None
        return found

    return value


def _throttled(reasons: Sequence[str]) -> _Value:
    def value(rung: RungMeasurement) -> float | None:
        given = rung.machine.throttled if rung.machine else {}
        return max((share for why, share in given.items() if why in reasons), default=None)

    return value


_SEEN: tuple[tuple[str, _Value, Callable[[float], str]], ...] = (
    ("KV cache used, mean", _engine("kv_usage_mean"), _share),
    ("KV cache used, most", _engine("kv_usage_max"), _share),
    ("requests preempted", _engine("preempted"), number),
    ("prompt tokens found in the prefix cache", _engine("prefix_found_share"), _share),
    ("GPU power, W", _machine("power_w"), number),
    ("output tokens a joule", _machine("tok_per_joule"), number),
    ("joules an output token", _machine("joules_per_token"), number),
    ("GPU clocks, MHz", _machine("clocks_mhz"), number),
    ("GPU busy", _machine("utilisation"), _share),
    ("GPU memory, MB", _machine("memory_mb"), number),
    ("hottest GPU, C", _machine("temperature_c"), number),
    ("GPU at its power cap", _throttled(("power_cap",)), _share),
    ("GPU slowed down by heat or supply", _throttled(BRAKES), _share),
    ("host's cores busy", _machine("host_cpu_share"), _share),
    ("host's memory free, MB", _machine("available_memory_mb"), number),
)
