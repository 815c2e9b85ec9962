"""Answers for people: tables and small pictures on stdout."""

import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tuner.console.terminal import label, one_line, terminal
from tuner.definitions.space import MAX_COUNT
from tuner.measuring.measurement import RungMeasurement
from tuner.records import TrialRecord
from tuner.verbs.inspect import Check, TrialView
from tuner.verdicts.ledger import LedgerRow
from tuner.views.asked import forgotten
from tuner.views.machine import known_rows, unobserved
from tuner.views.plan import Plan, PlannedPart
from tuner.views.results import DeadEnd, StudyView, TrialRow
from tuner.views.words import (
    LEGEND,
    SIGN,
    changed_words,
    number,
    plain,
    ran_words,
    said_changes,
    unit_of,
    winner_words,
)

VERDICT_STYLE = {
    "helps": "green",
    "regresses": "red",
    "blocked": "red",
    "crashes": "red",
    "wrong output": "red",
}
NARROW = 78
"""Columns that the trials need beside their rates."""


def show_check(check: Check) -> None:
    """One paragraph: the study has no faults, and what could not be verified here."""
    out = terminal()
    ladder = ", ".join(check.ladder)
    out.print(
        f"{check.study}: no faults. Engine {check.engine}, {check.parameters} parameters "
        f"({_size(check)}), {check.hypotheses} hypotheses, ladder {ladder}."
    )
    for sentence in (*check.workload.sentences(), *check.scope.sentences()):
        out.print(plain(sentence))
    for sentence in check.not_ready:
        out.print(f"not ready on this machine: {sentence}", style="yellow")
    for sentence in check.unverified:
        out.print(f"not verified: {plain(sentence)}", style="yellow")
    for sentence in check.notes:
        out.print(f"note: {plain(sentence)}")
    for sentence in check.known:
        out.print(f"known: {plain(sentence)}", style="yellow")


def _size(check: Check) -> str:
    if check.configurations is not None:
        return f"{check.configurations} configurations"
    return "a continuous space" if check.continuous else f"more than {MAX_COUNT:,} combinations"


def show_plan(plan: Plan) -> None:
    """The night part by part, with the commands below."""
    out = terminal()
    for line in label(plan.rehearsal):
        out.print(line)
    if plan.parts:
        table = Table("phase", "what", "launches", "minutes", "does not fit", box=None)
        for part in plan.parts:
            table.add_row(*_planned(part))
        out.print(table)
    out.print(_arithmetic(plan))
    for sentence in _beside(plan):
        out.print(sentence)
    for part in plan.parts:
        if part.command:
            out.print(f"\n# {part.phase}: {one_line(part.what)}\n{part.command}", soft_wrap=True)


def _beside(plan: Plan) -> list[str]:
    """What a reader of the table must know: what was assumed, dropped, left out, not verified."""
    dropped = ", ".join(plan.dropped_hypotheses)
    lines = [plan.assumed] if any(part.launches for part in plan.parts) else []
    lines += [f"The budget has no launch for: {dropped}."] if dropped else []
    lines += [*plan.workload.sentences(), *plan.scope.sentences()]
    if plan.unverified:
        lines += ["Could not be verified here:", *(f"  {each}" for each in plan.unverified)]
    lines += [f"note: {each}" for each in plan.notes]
    lines += [f"known: {each}" for each in plan.known]
    return [plain(line) for line in lines]


def _planned(part: PlannedPart) -> tuple[str, ...]:
    dropped = str(part.dropped) if part.dropped else ""
    what = one_line(part.what)
    return part.phase, what, str(part.launches), f"{part.minutes:.1f}", dropped


def _arithmetic(plan: Plan) -> str:
    made = f"{plan.launches_made} launches made"
    if plan.launches_left == 0:
        return f"{made}: the budget is used up. A larger one continues the study."
    if not plan.parts:
        return f"{made}: nothing is left to try."
    source = "measured here" if plan.launch_s_measured else "an estimate: nothing was launched yet"
    left = "no limit on launches" if plan.launches_left is None else f"{plan.launches_left} left"
    return (
        f"{made}, {left}; {plan.launch_s:.0f} s a launch ({source}), "
        f"{plan.ladder_s:.0f} s of it load: {_duration(plan.minutes)}. Where rungs wait for a "
        f"server to settle or are measured again, up to {plan.longest_ladder_s:.0f} s of load."
    )


def _duration(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def show_study(view: StudyView) -> None:
    """The verdict, hypotheses, what never to try again, the trials.

    Where that is more than a screen the verdict comes once more: it is seen without scrolling,
    whichever end the reader is at.
    """
    out = terminal()
    verdict = [*_changed(view), *_verdict(view)]
    body = Group(*_sections(view, out.width))
    out.print(*label(view.rehearsal, view.time_scale), *verdict, body, sep="\n")
    if len(out.render_lines(body, pad=False)) + len(verdict) >= out.height:
        out.print(Text(""), *verdict, sep="\n")


def _sections(view: StudyView, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [Text("")]
    if view.hypotheses:
        parts += [_hypotheses(view.hypotheses), Text("")]
    parts += [Text(sentence) for sentence in view.located]
    parts += [_never(dead_end) for dead_end in view.never_again]
    parts += [Text(f"note: {plain(sentence)}") for sentence in view.dead]
    if view.located or view.never_again or view.dead:
        parts.append(Text(""))
    if not view.trials:
        return [*parts, Text(f"Nothing was launched yet: tuner run {shlex.quote(view.study)}")]
    parts += [_trials(view, width), Text("")]
    parts += [Text(LEGEND)] if any(row.extrapolated for row in view.trials) else []
    parts += [Text(_time(view)), Text(view.noise), Text(view.conclusion.output)]
    return [*parts, Text(f"ended: {view.ended}")] if view.ended else parts


def _verdict(view: StudyView) -> list[Text]:
    sentence = plain(view.conclusion.sentence)
    if view.winner_changes is None:
        return [Text(sentence, style="bold")]
    style = "bold green"
    return [
        Text(winner_words(view.winner_changes, view.winner_replicas), style=style),
        Text(sentence, style=style),
        *(Text(f"note: {plain(caution)}") for caution in view.cautions),
        Text(f"tuner export {shlex.quote(view.study)}", style=style),
    ]


def _changed(view: StudyView) -> list[Text]:
    if not view.changed:
        return []
    return [Text(changed_words(plain(view.changed)), style="bold red")]


def _trials(view: StudyView, width: int) -> Table:
    """Rates by rung where there is room for them beside what was changed."""
    rows, unit = view.trials, unit_of(view.scored)
    rungs = sorted({level for row in rows for level in row.rates})
    if width < NARROW + 8 * len(rungs):
        rungs = []
    table = Table(box=None, show_edge=False)
    for name in ("trial", "what", "score", *(f"{unit}\n@{rung:g}" for rung in rungs), "time"):
        table.add_column(name, no_wrap=name != "what", vertical="top")
    table.add_column("changes, and what came of them", overflow="fold")
    for row in rows:
        sign = SIGN if row.extrapolated else ""
        rates = [f"{number(row.rates[r])}{sign}" if r in row.rates else "" for r in rungs]
        table.add_row(
            str(row.number),
            row.hypothesis or row.kind,
            "" if row.score is None else f"{row.score:.4f}{sign}",
            *rates,
            f"{row.duration_s:.0f} s",
            _came_of(row),
        )
    return table


def _came_of(row: TrialRow) -> Text:
    """Changes alone where all went well: the score says so."""
    text = Text(said_changes(row.changes))
    if row.outcome != "completed":
        style = "red" if row.outcome in ("failed", "invalid") else "dim"
        text.append(f"\n{one_line(row.words)}", style=style)
    if row.ran_at:
        text.append(f"\n{ran_words(row.ran_at)}", style="yellow")
    if row.void and row.outcome != "invalid":
        text.append(f"\nmeasured again: {one_line(row.void[0])}", style="yellow")
    if row.breaches:
        text.append(f"\nbreaks {row.breaches[0]}", style="red")
    return text


def _hypotheses(rows: Sequence[LedgerRow]) -> Table:
    table = Table("hypothesis", "expected", "verdict", "in words", box=None, show_edge=False)
    for row in rows:
        low, high = row.expected_percent
        verdict = Text(row.verdict, style=VERDICT_STYLE.get(row.verdict, ""))
        table.add_row(
            row.id,
            f"{low:g} to {high:g} %",
            verdict,
            one_line(row.words.removeprefix(f"{row.verdict}: ")),
        )
    return table


def _never(dead_end: DeadEnd) -> Text:
    """What is blamed stands for all that these launches had in common."""
    said = said_changes(dead_end.suspects or dead_end.changes)
    every = len(dead_end.changes)
    narrowed = 0 < len(dead_end.suspects) < every
    blamed = f", blamed out of {every} changes" if narrowed else ""
    trials = ", ".join(str(number) for number in dead_end.trials)
    where = f"{'trials' if len(dead_end.trials) > 1 else 'trial'} {trials}"
    text = Text(f"never again: {said} ({where}{blamed}) [{dead_end.kind}]")
    return text.append(f"\n  {one_line(dead_end.cause)}\n  {plain(dead_end.advice)}")


def _time(view: StudyView) -> str:
    parts = [f"{use.name} {use.share:.0%}" for use in view.time_use if use.by == "phase"]
    total = sum(row.duration_s for row in view.trials)
    return f"{len(view.trials)} launches, {_duration(total / 60)}: {', '.join(parts)}"


def show_trial(view: TrialView) -> None:
    """One launch in full: what came of it, rungs, arguments read back, command, log."""
    out = terminal()
    record, row = view.record, view.row
    lines = [
        *label(view.rehearsal),
        f"trial {record.number} ({record.hypothesis or record.kind}): {plain(row.words)}",
        f"changes: {said_changes(row.changes)}",
    ]
    if record.failure is not None:
        blame = ", ".join(record.failure.blame) or "nothing by name"
        lines += [f"blamed: {plain(blame)}", f"advice: {plain(record.failure.advice)}"]
    lines += [f"breaks: {breach}" for breach in row.breaches]
    lines += [f"void: {plain(attempt)}" for attempt in row.void]
    lines += [f"remark: {plain(remark)}" for remark in row.remarks]
    lines += [f"output: {plain(row.output)}"] if row.output else []
    lines += _asked(record)
    if record.replicas.of > 1:
        lines.append(f"servers: {record.replicas}")
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in record.phase_s.items())
    lines.append(
        f"took: {record.duration_s:.1f} s{f' ({phases})' if phases else ''}"
        f" from {record.started_at}"
    )
    out.print(*lines, sep="\n")
    if record.rungs:
        out.print(_rungs(view))
        out.print(*_meanwhile(record.rungs), sep="\n")
    if row.extrapolated:
        out.print(LEGEND)
    for rung in record.rungs:
        if rung.first_error:
            out.print(f"first error at {rung.said}: {one_line(rung.first_error)}")
    if record.effective:
        unlike = said_changes(view.unlike_baseline) if view.unlike_baseline else "nothing"
        out.print(
            f"runs with, unlike the baseline: {unlike}"
            f" ({len(record.effective)} arguments were read back; --json has all)"
        )
    for changed in record.overridden:
        out.print(
            f"{one_line(str(changed))}{f' ({one_line(changed.line)})' if changed.line else ''}"
        )
    if record.command:
        out.print(f"command: {record.command}\nlog: {view.log}", soft_wrap=True)


def _asked(record: TrialRecord) -> list[str]:
    sentences = [] if record.workload is None else record.workload.sentences()
    said = forgotten([record])
    return [plain(each) for each in (*sentences, said) if each]


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
        show_edge=False,
    )
    sign = SIGN if view.row.extrapolated else ""
    rungs = view.record.rungs
    more = [(head, cell) for head, cell in _WHERE_KNOWN if any(map(cell, rungs))]
    for head, _ in more:
        table.add_column(head)
    for rung in rungs:
        load = rung.engine_load
        latencies = (rung.ttft_ms, rung.tpot_ms)
        table.add_row(
            _at(rung),
            *(f"{number(rate)}{sign}" for rate in (rung.output_tok_s, rung.total_tok_s)),
            *(f"{number(d.p50)} / {number(d.p99)}" if d else "-" for d in latencies),
            number(load.running_mean) if load else "-",
            number(load.queued_mean) if load else "-",
            str(rung.requests_completed),
            str(rung.requests_failed),
            *(cell(rung) for _, cell in more),
        )
    return table


def _meanwhile(rungs: Sequence[RungMeasurement]) -> list[Table | str]:
    """What machine and engine did meanwhile, and what of it nobody could see."""
    missing: list[Table | str] = [plain(words) for words in unobserved(rungs)]
    rows = known_rows(rungs)
    if not rows:
        return missing
    table = Table("at", *(rung.said for rung in rungs), box=None, show_edge=False)
    for name, cells in rows:
        table.add_row(name, *cells)
    return [table, *missing]


def _goodput(rung: RungMeasurement) -> str:
    return "" if rung.goodput_rps is None else number(rung.goodput_rps)


def _answered(rung: RungMeasurement) -> str:
    load = rung.open_load
    return "" if load is None else f"{number(load.answered_rps)} / {number(load.due_rps)}"


_WHERE_KNOWN = (("goodput req/s", _goodput), ("answered/due req/s", _answered))


def _at(rung: RungMeasurement) -> str:
    """`16`, or `16 (8 played, x2)` where they stand for more."""
    if rung.played == rung.level:
        return rung.said
    return f"{rung.said} ({rung.played:g} played, x{rung.factor:g})"
