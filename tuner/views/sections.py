"""The parts of a report, each from what it shows. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.records import TrialRecord
from tuner.verdicts.ledger import LedgerRow
from tuner.verdicts.score import throughput
from tuner.views.compare import Comparison, Difference
from tuner.views.export import Export
from tuner.views.html import Html, element, table
from tuner.views.picture import picture
from tuner.views.results import DeadEnd, Front, StudyView, TrialRow
from tuner.views.sides import Side
from tuner.views.words import (
    LEGEND,
    REHEARSED,
    SIGN,
    changed_words,
    number,
    ran_words,
    said_changes,
    scored_words,
    unit_of,
    winner_words,
)

_GOOD = frozenset({"helps"})
_BAD = frozenset({"regresses", "blocked", "crashes", "wrong output"})
_OF_THE_FILES = ("space", "baseline", "fixed", "objective", "surface")
"""Parts of an identity that the study's own files say; the page shows the rest."""


def label(view: StudyView) -> Html | None:
    """That nothing here is a benchmark; None for a real engine."""
    if not view.rehearsal:
        return None
    pace = f"Numbers are in surface time, {view.time_scale:g} seconds in one real second."
    return element("p", f"{REHEARSED} {pace}", class_="label")


def changed(view: StudyView) -> Html | None:
    """That the study is no longer the one that was measured."""
    if not view.changed:
        return None
    return element("p", changed_words(view.changed), class_="changed")


def verdict(view: StudyView) -> list[Html]:
    """The sentence, and what the winner changes."""
    sentence = element("p", view.conclusion.sentence, class_="verdict")
    if view.winner_changes is None:
        return [sentence]
    winner = winner_words(view.winner_changes, view.winner_replicas)
    cautions = [element("p", text, class_="dim") for text in view.cautions]
    return [element("p", winner, class_="verdict good"), sentence, *cautions]


def command(chosen: Export | None, refused: str) -> list[Html]:
    """The launch to paste, or why there is none."""
    if chosen is None:
        return [element("p", refused)]
    servers = "\n".join(chosen.replicas) if chosen.replicas else chosen.command
    lines = [element("pre", line) for line in servers.splitlines()]
    return [*lines, element("p", chosen.why, class_="dim")]


def ladder(
    found: Comparison | None, baseline: Side | None, runner: Side | None, view: StudyView
) -> list[Html]:
    """Both sides by rung with the interval, or the baseline alone."""
    if baseline is None:
        return [element("p", "The baseline was not launched yet.")]
    if found is None or runner is None:
        return [
            element("p", "Nothing was launched afresh: below, the baseline alone."),
            table(
                ["at", *_heads("the baseline", view.scored), "noise"],
                [
                    [rung.said, *_cells(baseline, rung.level), _noise(view, rung.level)]
                    for rung in baseline.study.objective.ladder
                ],
            ),
        ]
    heads = [
        "at",
        *_heads("the baseline", found.scored),
        *_heads(runner.name, found.scored),
        "gain",
        "verdict",
        "noise",
    ]
    rows = [
        [
            row.at,
            *_cells(baseline, row.level or 0),
            *_cells(runner, row.level or 0),
            *_gain(row),
            _noise(view, row.level or 0),
        ]
        for row in found.rungs
    ]
    whole = ["score", *[None] * 6, *_gain(found.score), None]
    note = f"{scored_words(found.scored)}; latencies in ms, from the least launch to the most."
    return [table(heads, [*rows, whole]), element("p", note, class_="dim")]


def _heads(name: str, scored: str) -> list[str]:
    return [f"{name}, {unit_of(scored)}", "TTFT p99", "TPOT p50"]


def _gain(row: Difference) -> list[str | None]:
    if row.effect is None:
        return [None, row.words]
    said = str(row.effect.narrowed if row.verdict == "within noise" else row.effect)
    return [said, row.words.removeprefix(f"{said}; ")]


def _cells(side: Side, level: float) -> list[str | None]:
    rungs = [rung for r in side.launches for rung in r.rungs if rung.level == level]
    guess = SIGN if any(record.replicas.extrapolated for record in side.launches) else ""
    rates = _span([throughput(rung, side.study.objective) for rung in rungs])
    return [
        f"{rates}{guess}" if rates else None,
        _span([rung.ttft_ms.p99 for rung in rungs if rung.ttft_ms]),
        _span([rung.tpot_ms.p50 for rung in rungs if rung.tpot_ms]),
    ]


def _span(values: Sequence[float]) -> str | None:
    """`80`, or `79 to 81`; None without a value."""
    ends = [number(value) for value in (min(values), max(values))] if values else []
    return " to ".join(dict.fromkeys(ends)) or None


def _noise(view: StudyView, level: float) -> str | None:
    noise = view.conclusion.noise.rungs.get(level)
    return f"{noise.sd_percent:.1f} %" if noise else None


def hypotheses(view: StudyView) -> list[Html]:
    """What was expected of each, and what came of it."""
    if not view.hypotheses:
        return [element("p", "None were stated.")]
    heads = ["hypothesis", "claim", "expected", "verdict", "in words", "trials"]
    located = [element("p", sentence) for sentence in view.located]
    return [table(heads, [_hypothesis(row) for row in view.hypotheses]), *located]


def _hypothesis(row: LedgerRow) -> list[str | Html]:
    low, high = row.expected_percent
    style = "good" if row.verdict in _GOOD else "bad" if row.verdict in _BAD else None
    return [
        row.id,
        row.claim,
        f"{low:g} to {high:g} %",
        element("span", row.verdict, class_=style),
        row.words.removeprefix(f"{row.verdict}: "),
        _numbers(row.trials),
    ]


def _numbers(trials: Sequence[int]) -> str:
    return ", ".join(str(trial) for trial in trials)


def never_again(view: StudyView) -> list[Html]:
    """What died of its own fault, with the cause."""
    if not view.never_again:
        return [element("p", "Nothing died by the fault of its configuration.")]
    heads = ["what", "cause", "kind", "what to do", "blamed by name", "trials"]
    return [table(heads, [_dead_end(row) for row in view.never_again])]


def _dead_end(row: DeadEnd) -> list[str]:
    what = said_changes(row.suspects or row.changes)
    return [what, row.cause, row.kind, row.advice, ", ".join(row.blame), _numbers(row.trials)]


def noise(view: StudyView) -> list[Html]:
    """How much launches of one configuration differ, what that can show, and whether it moved."""
    found = view.conclusion
    said = [f"{each[:1].upper()}{each[1:]}." for each in (view.noise, found.output) if each]
    if found.detectable_percent is not None:
        said.append(f"A gain of {found.detectable_percent:.1f} % would likely have been found.")
    if found.drift is None:
        said.append("Drift is unknown: it takes three launches of the baseline.")
    else:
        moved = found.drift
        beyond = "beyond noise" if moved.beyond_noise else "within noise"
        said.append(
            f"From its first to its last of {moved.launches} launches the baseline changed by"
            f" {moved.change_percent:+.1f} % ({moved.low_percent:+.1f} to"
            f" {moved.high_percent:+.1f}), {beyond}."
        )
    return [element("p", sentence) for sentence in said]


def trade_offs(front: Front) -> list[Html]:
    """The front as a drawing, and its points."""
    drawn = picture(front)
    if drawn is None:
        return [element("p", front.why_empty)]
    key = (
        "Green: no other is better in both. Grey: beaten. Squares: the baseline."
        " Hollow: a single launch."
    )
    rows = [
        [
            front.said(point),
            f"{number(point.x)}{SIGN if point.extrapolated else ''}",
            f"{number(point.y)}{SIGN if point.extrapolated else ''}",
            said_changes(front.changes[point.key]),
            _numbers(point.trials) + (", once" if len(point.trials) == 1 else ""),
        ]
        for point in front.points
    ]
    heads = ["at", front.x, front.y, "configuration", "trials"]
    legend = [element("p", said, class_="dim") for said in (key, *front.legend)]
    return [drawn, *legend, table(heads, rows)]


def trials(view: StudyView) -> list[Html]:
    """Every launch in its order."""
    if not view.trials:
        return [element("p", "Nothing was launched yet.")]
    rungs = sorted({level for row in view.trials for level in row.rates})
    rates = [f"{unit_of(view.scored)} at {view.said(level)}" for level in rungs]
    heads = ["trial", "what", "score", *rates, "s", "changes", "what came of it"]
    shown = [table(heads, [_trial(row, rungs) for row in view.trials])]
    if any(row.extrapolated for row in view.trials):
        shown.append(element("p", LEGEND, class_="dim"))
    phases = [f"{use.name} {use.share:.0%}" for use in view.time_use if use.by == "phase"]
    return [*shown, element("p", f"Where the time went: {', '.join(phases)}.")]


def _trial(row: TrialRow, rungs: Sequence[float]) -> list[str | int | None]:
    sign = SIGN if row.extrapolated else ""
    came = [row.words, *(f"breaks {breach}" for breach in row.breaches)]
    came += [f"void: {attempt}" for attempt in row.void]
    came += [ran_words(row.ran_at)] if row.ran_at else []
    return [
        row.number,
        row.hypothesis or row.kind,
        None if row.score is None else f"{row.score:.4f}{sign}",
        *(f"{number(row.rates[at])}{sign}" if at in row.rates else None for at in rungs),
        f"{row.duration_s:.0f}",
        said_changes(row.changes),
        "; ".join(came),
    ]


def environment(
    identity: Mapping[str, Any],
    machine: Mapping[str, str],
    objective: Mapping[str, Any],
    records: Sequence[TrialRecord],
    view: StudyView,
) -> list[Html]:
    """Engine, hardware, model, load, hosts, and when."""
    known = {name: value for name, value in identity.items() if name not in _OF_THE_FILES}
    said = {**_flat(known), **_told(records), **machine}
    load = {name: _json(value) for name, value in objective.items()}
    return [
        table(["", ""], [[name, value] for name, value in said.items()]),
        element("h3", "The load"),
        *(element("p", sentence) for sentence in _asked(view)),
        table(["", ""], [[name, value] for name, value in load.items()]),
    ]


def _asked(view: StudyView) -> list[str]:
    """The load in words."""
    sentences = [] if view.workload is None else view.workload.sentences()
    return [*sentences, view.forgotten] if view.forgotten else sentences


def _flat(known: Mapping[str, Any]) -> dict[str, str]:
    """One line for each value that says something."""
    flat: dict[str, str] = {}
    for name, value in known.items():
        inner: Mapping[str, Any] = value if isinstance(value, dict) else {"": value}
        flat |= {
            f"{name} {key}".strip(): _json(v) for key, v in inner.items() if v not in (None, {})
        }
    return flat


def _told(records: Sequence[TrialRecord]) -> dict[str, str]:
    """What the servers said of themselves, and where and when they ran."""
    if not records:
        return {}
    facts: Mapping[str, set[Any]] = {
        "version by its servers": {r.facts.version for r in records},
        "weights, GB on each GPU": {r.facts.weight_gb_per_gpu for r in records},
        "KV cache, tokens": {r.facts.kv_tokens for r in records},
        "hosts": {r.host or None for r in records},
    }
    said = {
        name: ", ".join(sorted(str(value) for value in values if value is not None))
        for name, values in facts.items()
    }
    when = f"{records[0].started_at} to {records[-1].started_at}"
    return {**{name: value for name, value in said.items() if value}, "launched": when}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
