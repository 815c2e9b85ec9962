"""The Pareto front for people: a picture of letters, and what each stands for."""

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from tuner.console.terminal import label, terminal
from tuner.verdicts.analysis import ParetoPoint
from tuner.views.results import Front
from tuner.views.words import LEGEND, SIGN, number, said_changes

CHART_WIDTH, CHART_HEIGHT = 60, 14
MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BASELINE_MARK, BEATEN_MARK = "=", "."
ONCE = "once: a single launch, which noise alone may have put where it is"


def show_front(front: Front) -> None:
    """The front as a picture and as a table; below it the baseline, where it is not on it."""
    out = terminal()
    if not front.points:
        out.print(*label(front.rehearsal), front.why_empty, sep="\n")
        return
    out.print(*label(front.rehearsal), _chart(front), sep="\n")
    table = Table("", "at", front.x, front.y, "trials", "configuration", box=None, show_edge=False)
    for index, point in enumerate(front.points):
        table.add_row(*_row(front, _mark(index), point))
    baseline = [point for point in front.beaten if point.key == front.baseline_key]
    for point in baseline:
        table.add_row(*_row(front, BASELINE_MARK, point), style="dim")
    out.print(table)
    listed = [*front.points, *baseline]
    if any(len(point.trials) == 1 for point in listed):
        out.print(ONCE)
    if any(point.extrapolated for point in listed):
        out.print(LEGEND)
    for meant in front.legend:
        out.print(meant, soft_wrap=True)


def _row(front: Front, mark: str, point: ParetoPoint) -> tuple[str | Text, ...]:
    sign = SIGN if point.extrapolated else ""
    trials = ", ".join(str(n) for n in point.trials)
    what = Text(said_changes(front.changes[point.key]), overflow="fold")
    if point.key == front.baseline_key:
        what.stylize("bold")
    return (
        mark,
        front.said(point),
        *(f"{number(value)}{sign}" for value in (point.x, point.y)),
        trials if len(point.trials) > 1 else f"{trials}, once",
        what,
    )


def _mark(index: int) -> str:
    return MARKS[index] if index < len(MARKS) else "*"


def _chart(front: Front) -> str:
    """Points by letter, x to the right and y upwards, both from the least to the most.

    A letter whose place is taken stands in the next free one to its right or left.
    """
    grid = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    marked = [(_mark(index), point) for index, point in enumerate(front.points)]
    marked += [(_beaten_mark(front, point), point) for point in _baseline_first(front)]
    xs, ys = [p.x for _, p in marked], [p.y for _, p in marked]
    for mark, point in marked:
        column = _cell(point.x, xs, CHART_WIDTH)
        row = grid[CHART_HEIGHT - 1 - _cell(point.y, ys, CHART_HEIGHT)]
        free = [at for at in range(CHART_WIDTH) if row[at] == " "]
        if mark != BEATEN_MARK:
            column = min(free, key=lambda at: (abs(at - column), -at), default=column)
        elif row[column] != " ":
            continue
        row[column] = mark
    return "\n".join(
        [
            f"  {front.y}, {_range(ys)}",
            *(f"  |{''.join(row)}" for row in grid),
            f"  +{'-' * CHART_WIDTH}",
            f"   {front.x}, {_range(xs)}{_key(front)}",
        ]
    )


def _baseline_first(front: Front) -> list[ParetoPoint]:
    return sorted(front.beaten, key=lambda point: point.key != front.baseline_key)


def _beaten_mark(front: Front, point: ParetoPoint) -> str:
    return BASELINE_MARK if point.key == front.baseline_key else BEATEN_MARK


def _key(front: Front) -> str:
    marks = {_beaten_mark(front, point) for point in front.beaten}
    words = {BASELINE_MARK: "the baseline", BEATEN_MARK: "beaten by one of these"}
    return "".join(f"   {mark} {said}" for mark, said in words.items() if mark in marks)


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
