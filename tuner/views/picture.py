"""The Pareto front as a small drawing inside a page. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.verdicts.analysis import ParetoPoint
from tuner.views.html import Html, element
from tuner.views.results import Front
from tuner.views.words import said_changes

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 16, 46
WIDE = 10
"""A range of more than so many times its least is drawn on a log scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """Where values stand between two ends, in drawing units."""

    values: Sequence[float]
    start: float
    end: float

    @property
    def log(self) -> bool:
        return 0 < WIDE * min(self.values) < max(self.values)

    def at(self, value: float) -> float:
        low, high = min(self.values), max(self.values)
        if low == high:
            return (self.start + self.end) / 2
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def picture(front: Front) -> Html | None:
    """Filled: on the front; hollow: a single launch; squares: the baseline; grey: beaten.

    None before any configuration has a point.
    """
    points = [*front.beaten, *front.points]
    if not points:
        return None
    x = _Axis(values=[p.x for p in points], start=LEFT, end=WIDTH - RIGHT)
    y = _Axis(values=[p.y for p in points], start=HEIGHT - BOTTOM, end=TOP)
    return element(
        "svg",
        element("title", f"{front.y} over {front.x}"),
        _frame(),
        _ends(front, x, y),
        [_mark(front, point, x, y) for point in points],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )


def _frame() -> Html:
    path = f"M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"
    return element("path", d=path, class_="frame")


def _ends(front: Front, x: _Axis, y: _Axis) -> list[Html]:
    """Names of the axes, and their least and most."""
    floor, middle = HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2
    return [
        _said(f"{min(x.values):.4g}", LEFT, floor + 18, "start"),
        _said(f"{max(x.values):.4g}", WIDTH - RIGHT, floor + 18, "end"),
        _said(f"{front.x}{' (log scale)' if x.log else ''}", middle, floor + 36, "middle"),
        _said(f"{min(y.values):.4g}", LEFT - 6, floor, "end"),
        _said(f"{max(y.values):.4g}", LEFT - 6, TOP + 10, "end"),
        _said(f"{front.y}{' (log scale)' if y.log else ''}", LEFT + 6, TOP + 4, "start"),
    ]


def _said(words: str, x: float, y: float, anchor: str) -> Html:
    return element("text", words, x=x, y=y, text_anchor=anchor)


def _mark(front: Front, point: ParetoPoint, x: _Axis, y: _Axis) -> Html:
    kind = "front" if point in front.points else "beaten"
    once = " once" if len(point.trials) == 1 else ""
    at = front.said(point) if point.level is None else f"at {front.said(point)}"
    trials = ", ".join(str(number) for number in point.trials)
    what = said_changes(front.changes[point.key])
    title = element("title", f"{what}, {at}: {point.x:.4g}, {point.y:.4g} (trial {trials})")
    column, row = x.at(point.x), y.at(point.y)
    if point.key == front.baseline_key:
        shape = {"x": column - 5, "y": row - 5, "width": 10, "height": 10}
        return element("rect", title, class_=f"{kind} baseline{once}", **shape)
    return element("circle", title, cx=column, cy=row, r=5, class_=f"{kind}{once}")
