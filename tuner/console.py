"""Answers for people: tables and small pictures on stdout."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.definitions import Value
from tuner.ledger import LedgerRow
from tuner.plan import Plan, PlannedPart
from tuner.verbs import Check, TrialView
from tuner.views import DeadEnd, Front, StudyView, TrialRow

VERDICT_STYLE = {
    "helps": "green",
    "regresses": "red",
    "blocked": "red",
    "crashes": "red",
    "wrong output": "red",
}
CHART_WIDTH, CHART_HEIGHT = 60, 14


def said_changes(changed: Mapping[str, Value]) -> str:
    """`ep-size=8, cuda-graph unset`, or that nothing differs from the baseline."""
    words = [
        f"{name} unset" if value is None else f"{name}={_spelt(value)}"
        for name, value in changed.items()
    ]
    return ", ".join(words) or "the baseline"


def _spelt(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _out() -> Console:
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console = Console(highlight=False, width=160)
    return console


def _label(rehearsal: bool, time_scale: float | None = None) -> Text:
    if not rehearsal:
        return Text("")
    pace = f", {time_scale:g} surface seconds in one real second" if time_scale else ""
    return Text(f"REHEARSAL{pace}: numbers in surface time, not a benchmark", style="yellow")


def show_check(check: Check) -> None:
    """One paragraph: the study has no faults, and what could not be verified here."""
    out = _out()
    size = (
        f"{check.configurations} configurations" if check.configurations else "a continuous space"
    )
    ladder = ", ".join(str(concurrency) for concurrency in check.ladder)
    out.print(
        f"{check.study}: no faults. Engine {check.engine}, {check.parameters} parameters "
        f"({size}), {check.hypotheses} hypotheses, ladder {ladder}.",
        markup=False,
    )
    for sentence in check.not_ready:
        out.print(f"not ready on this machine: {sentence}", markup=False, style="yellow")


def show_plan(plan: Plan) -> None:
    """The night part by part, with the commands below."""
    out = _out()
    if plan.rehearsal:
        out.print(_label(True))
    table = Table("phase", "what", "launches", "minutes", "does not fit", box=None)
    for part in plan.parts:
        table.add_row(*_planned(part))
    out.print(table)
    out.print(_arithmetic(plan), markup=False)
    for part in plan.parts:
        if part.command:
            out.print(
                f"\n# {part.phase}: {part.what}\n{part.command}", markup=False, soft_wrap=True
            )


def _planned(part: PlannedPart) -> tuple[str, ...]:
    dropped = str(part.dropped) if part.dropped else ""
    return part.phase, part.what, str(part.launches), f"{part.minutes:.1f}", dropped


def _arithmetic(plan: Plan) -> str:
    source = "measured here" if plan.launch_s_measured else "an estimate: nothing was launched yet"
    left = "no limit on launches" if plan.launches_left is None else f"{plan.launches_left} left"
    return (
        f"{plan.launches_made} launches made, {left}; {plan.launch_s:.0f} s a launch ({source}), "
        f"{plan.ladder_s:.0f} s of it load: {plan.minutes:.0f} minutes."
    )


def show_study(view: StudyView) -> None:
    """The verdict first, then hypotheses, what never to try again, and the trials."""
    out = _out()
    if view.rehearsal:
        out.print(_label(True, view.time_scale))
    out.print(_trials(view.trials))
    if view.hypotheses:
        out.print(_hypotheses(view.hypotheses))
    for sentence in view.located:
        out.print(sentence, markup=False)
    for dead_end in view.never_again:
        out.print(_never(dead_end))
    out.print(_time(view), markup=False)
    out.print(f"noise: {view.noise}", markup=False)
    if view.ended:
        out.print(f"ended: {view.ended}", markup=False)
    out.print(_verdict(view))


def _verdict(view: StudyView) -> Text:
    if view.winner_changes is None:
        return Text(f"\n{view.conclusion.sentence}", style="bold")
    return Text(
        f"\nWinner: {said_changes(view.winner_changes)}\n{view.conclusion.sentence}\n"
        f"tuner export {view.study}",
        style="bold green",
    )


def _trials(rows: Sequence[TrialRow]) -> Table:
    rungs = sorted({concurrency for row in rows for concurrency in row.tok_s})
    table = Table(
        "trial",
        "kind",
        "changes",
        *(f"tok/s @{rung}" for rung in rungs),
        "score",
        "outcome",
        box=None,
        show_edge=False,
    )
    for row in rows:
        rates = [f"{row.tok_s[rung]:.4g}" if rung in row.tok_s else "" for rung in rungs]
        value = "" if row.score is None else f"{row.score:.4f}"
        outcome = row.words + (f"; breaks {row.breaches[0]}" if row.breaches else "")
        table.add_row(
            str(row.number),
            row.hypothesis or row.kind,
            Text(said_changes(row.changes)),
            *rates,
            value,
            Text(outcome),
        )
    return table


def _hypotheses(rows: Sequence[LedgerRow]) -> Table:
    table = Table("hypothesis", "expected", "verdict", "in words", box=None, title_justify="left")
    for row in rows:
        low, high = row.expected_percent
        verdict = Text(row.verdict, style=VERDICT_STYLE.get(row.verdict, ""))
        table.add_row(row.id, f"{low:g} to {high:g} %", verdict, Text(row.words))
    return table


def _never(dead_end: DeadEnd) -> Text:
    blame = f" (blamed: {', '.join(dead_end.blame)})" if dead_end.blame else ""
    trials = ", ".join(str(number) for number in dead_end.trials)
    return Text(
        f"never again: {said_changes(dead_end.changes)}{blame}: {dead_end.cause} "
        f"[{dead_end.kind}, trial {trials}]\n  {dead_end.advice}"
    )


def _time(view: StudyView) -> str:
    parts = [f"{use.name} {use.share:.0%}" for use in view.time_use if use.by == "phase"]
    total = sum(row.duration_s for row in view.trials)
    return f"{len(view.trials)} launches, {total / 60:.1f} minutes: {', '.join(parts)}"


def show_trial(view: TrialView) -> None:
    """One launch in full: command, arguments read back, rungs, failure."""
    out = _out()
    if view.rehearsal:
        out.print(_label(True))
    record, row = view.record, view.row
    out.print(
        f"trial {record.number} ({record.hypothesis or record.kind}): {row.words}", markup=False
    )
    out.print(f"changes: {said_changes(row.changes)}", markup=False)
    out.print(f"command: {record.command}", markup=False, soft_wrap=True)
    if record.failure is not None:
        blame = ", ".join(record.failure.blame) or "nothing by name"
        out.print(f"blamed: {blame}\nadvice: {record.failure.advice}", markup=False)
    out.print(_rungs(view))
    if record.effective:
        read_back = ", ".join(f"{n}={_spelt(v)}" for n, v in sorted(record.effective.items()))
        out.print(f"runs with: {read_back}", markup=False, soft_wrap=True)


def _rungs(view: TrialView) -> Table:
    table = Table(
        "at",
        "output tok/s",
        "total tok/s",
        "ttft p50/p99 ms",
        "tpot p50/p99 ms",
        "running",
        "queued",
        "requests",
        "failed",
        box=None,
    )
    for rung in view.record.rungs:
        load = rung.engine_load
        table.add_row(
            str(rung.concurrency),
            f"{rung.output_tok_s:.5g}",
            f"{rung.total_tok_s:.5g}",
            *(f"{d.p50:.4g} / {d.p99:.4g}" if d else "-" for d in (rung.ttft_ms, rung.tpot_ms)),
            f"{load.running_mean:.4g}" if load else "-",
            f"{load.queued_mean:.4g}" if load else "-",
            str(rung.requests_completed),
            str(rung.requests_failed),
        )
    return table


def show_front(front: Front) -> None:
    """The front as a picture and as a table."""
    out = _out()
    if front.rehearsal:
        out.print(_label(True))
    if not front.points:
        out.print("No configuration has completed its ladder yet.")
        return
    out.print(_chart(front), markup=False)
    table = Table("", "configuration", "at", front.x, front.y, "trials", box=None)
    for mark, point in zip(_marks(), front.points, strict=False):
        table.add_row(
            mark,
            Text(said_changes(front.changes[point.key])),
            "ladder" if point.concurrency is None else str(point.concurrency),
            f"{point.x:.5g}",
            f"{point.y:.5g}",
            ", ".join(str(n) for n in point.trials),
        )
    out.print(table)


def _marks() -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _chart(front: Front) -> str:
    """Points by letter, x to the right and y upwards, both from the least to the most."""
    grid = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    xs, ys = [p.x for p in front.points], [p.y for p in front.points]
    for mark, point in zip(_marks(), front.points, strict=False):
        column = _cell(point.x, xs, CHART_WIDTH)
        row = CHART_HEIGHT - 1 - _cell(point.y, ys, CHART_HEIGHT)
        grid[row][column] = mark
    lines = [f"  |{''.join(row)}" for row in grid]
    return "\n".join(
        [
            f"  {front.y} (to {max(ys):.5g})",
            *lines,
            f"  +{'-' * CHART_WIDTH}",
            f"   {min(xs):.5g} to {max(xs):.5g}  {front.x}",
        ]
    )


def _cell(value: float, values: Sequence[float], cells: int) -> int:
    low, high = min(values), max(values)
    return 0 if high == low else round((value - low) / (high - low) * (cells - 1))
