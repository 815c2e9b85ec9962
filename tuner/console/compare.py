"""Two configurations beside each other, for people."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.console.terminal import label, one_line, terminal
from tuner.definitions.models import Value
from tuner.views.compare import Comparison, Difference, Shown
from tuner.views.words import LEGEND, SIGN, number, plain, spelt, unit_of

MOST_EFFECTIVE = 20
"""Of the arguments read back that differ, so many are listed; --json has all."""


def show_comparison(found: Comparison) -> None:
    """The sentence, both sides, the ladder, what differs, what to beware of."""
    out = terminal()
    out.print(*label(found.rehearsal), Text(plain(found.sentence), style="bold"), "", sep="\n")
    for side, letter in ((found.a, "A"), (found.b, "B")):
        out.print(*_side(side, letter), sep="\n")
    out.print("", _rungs(found), "", sep="\n")
    _differences(out, "declared", found.declared, len(found.declared))
    _differences(out, "runs with", found.effective, MOST_EFFECTIVE)
    if not found.declared and not found.effective:
        out.print("nothing that they declare or said of themselves differs")
    if found.a.extrapolated or found.b.extrapolated:
        out.print(LEGEND)
    out.print(*(Text(plain(note), style="yellow") for note in found.notes), sep="\n")


def _side(side: Shown, letter: str) -> list[str]:
    trials = ", ".join(str(number) for number in side.trials)
    launches = f"trials {trials}" if len(side.trials) > 1 else f"trial {trials}"
    alone = side.name == launches
    return [
        f"{letter}: {plain(side.name)}{'' if alone else f' ({launches})'}",
        *(f"   {one_line(outcome)}" for outcome in side.outcomes),
        *(f"   breaks {breach}" for breach in side.breaches),
    ]


def _rungs(found: Comparison) -> Table:
    unit = unit_of(found.scored)
    table = Table("at", f"A {unit}", f"B {unit}", "B over A", box=None, show_edge=False)
    for row in (*found.rungs, found.score):
        table.add_row(
            row.at,
            _rate(row.a_rate, found.a),
            _rate(row.b_rate, found.b),
            _judged(row),
        )
    return table


def _rate(rate: float | None, side: Shown) -> str:
    return "" if rate is None else f"{number(rate)}{SIGN if side.extrapolated else ''}"


def _judged(row: Difference) -> Text:
    return Text(plain(row.words), style={"b": "green", "a": "red"}.get(row.verdict, ""))


def _differences(
    out: Console, what: str, found: Mapping[str, tuple[Value, Value]], most: int
) -> None:
    if not found:
        return
    table = Table(what, "A", "B", box=None, show_edge=False)
    for name, (a, b) in list(found.items())[:most]:
        table.add_row(*(Text(plain(text), overflow="fold") for text in (name, _said(a), _said(b))))
    out.print(table)
    if len(found) > most:
        out.print(f"and {len(found) - most} more; --json has all")


def _said(value: Value) -> str:
    return "unset" if value is None else spelt(value)
