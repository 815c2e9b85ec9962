"""The Pareto front for people: a picture of letters, and what each stands for."""

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from tuner.console.show import LEGEND, SIGN, label, number, said_changes, terminal
from tuner.views.results import Front

CHART_WIDTH, CHART_HEIGHT = 60, 14
MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def show_front(front: Front) -> None:
    """The front as a picture and as a table."""
    out = terminal()
    if not front.points:
        words = "No configuration has completed its ladder yet."
        out.print(*label(front.rehearsal), words, sep="\n")
        return
    out.print(*label(front.rehearsal), _chart(front), sep="\n")
    table = Table("", "at", front.x, front.y, "trials", "configuration", box=None, show_edge=False)
    for index, point in enumerate(front.points):
        table.add_row(
            _mark(index),
            "ladder" if point.concurrency is None else str(point.concurrency),
            *(f"{number(v)}{SIGN if point.extrapolated else ''}" for v in (point.x, point.y)),
            ", ".join(str(n) for n in point.trials),
            Text(said_changes(front.changes[point.key]), overflow="fold"),
        )
    out.print(table)
    if any(point.extrapolated for point in front.points):
        out.print(LEGEND)


def _mark(index: int) -> str:
    return MARKS[index] if index < len(MARKS) else "*"


def _chart(front: Front) -> str:
    """Points by letter, x to the right and y upwards, both from the least to the most.

    A letter whose place is taken stands in the next free one to its right or left.
    """
    grid = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    xs, ys = [p.x for p in front.points], [p.y for p in front.points]
    for index, point in enumerate(front.points):
        column = _cell(point.x, xs, CHART_WIDTH)
        row = grid[CHART_HEIGHT - 1 - _cell(point.y, ys, CHART_HEIGHT)]
        free = [at for at in range(CHART_WIDTH) if row[at] == " "]
        row[min(free, key=lambda at: (abs(at - column), -at), default=column)] = _mark(index)
    return "\n".join(
        [
            f"  {front.y}, {_range(ys)}",
            *(f"  |{''.join(row)}" for row in grid),
            f"  +{'-' * CHART_WIDTH}",
            f"   {front.x}, {_range(xs)}",
        ]
    )


def _range(values: Sequence[float]) -> str:
    log = " on a log scale" if _is_wide(values) else ""
    return f"{number(min(values))} to {number(max(values))}{log}"


def _is_wide(values: Sequence[float]) -> bool:
    return 0 < min(values) < max(values) / 10


def _cell(value: float, values: Sequence[float], cells: int) -> int:
    low, high = min(values), max(values)
    if high == low:
        return 0
    if _is_wide(values):
        low, high, value = math.log(low), math.log(high), math.log(value)
    return round((value - low) / (high - low) * (cells - 1))
