"""The hypothesis ledger: what was expected, what came of it, and why, in words. Pure.

Stated hypotheses were not chosen for their result, so one launch of each counts; where a
configuration was also launched afresh as a finalist, those launches alone judge it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from tuner.definitions.levels import Level, level_words
from tuner.definitions.models import Hypothesis, Objective
from tuner.records import TrialRecord
from tuner.verdicts.arms import FRESH_LAUNCHES, Arms, compare, counts_against
from tuner.verdicts.effects import Effect, Judgement, judge, launches_to_decide, more_words
from tuner.verdicts.outputs import WRONG_OUTPUT

Verdict = Literal[
    "helps",
    "no effect",
    "inconclusive",
    "regresses",
    "blocked",
    "crashes",
    "moot",
    "not run",
    "wrong output",
]

BASELINE = "the baseline"
DEAD_ENDS: tuple[Verdict, ...] = ("blocked", "moot", "wrong output")
"""Verdicts that leave nothing to build on."""

_VERDICT_WORDS: Mapping[Judgement, str] = {
    "helps": "helps",
    "no effect": "no effect beyond noise",
    "inconclusive": "inconclusive",
    "regresses": "regresses",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RungEffect:
    """The effect at one rung."""

    level: Level
    by_rate: bool = False
    effect: Effect
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One hypothesis and its verdict; `words` can be quoted alone.

    `over` is what the effect is measured against: the baseline, or the parent hypothesis where
    that one changes something itself. `dies_at` is the rung that a crash came at, `cause`
    why there is no plain effect.
    """

    id: str
    claim: str
    attacks: str | None
    expected_percent: tuple[float, float]
    verdict: Verdict
    effect: Effect | None
    over: str
    rungs: tuple[RungEffect, ...]
    dies_at: Level | None
    cause: str
    words: str
    trials: tuple[int, ...]


def ledger(
    records: Iterable[TrialRecord],
    hypotheses: Sequence[Hypothesis],
    objective: Objective,
    baseline_key: str | None = None,
    idle: Mapping[str, str] = MappingProxyType({}),
) -> list[LedgerRow]:
    """A row for every stated hypothesis, in the order in which they were stated.

    `idle` are hypotheses that need no launch, since they change nothing, and why that is known.
    """
    arms = Arms(records, objective, baseline_key)
    by_id = {hypothesis.id: hypothesis for hypothesis in hypotheses}
    rows: dict[str, LedgerRow] = {}

    def row(hypothesis: Hypothesis) -> LedgerRow:
        if hypothesis.id not in rows:
            parents = [row(by_id[parent]) for parent in hypothesis.depends_on if parent in by_id]
            rows[hypothesis.id] = _row(arms, hypothesis, parents, idle.get(hypothesis.id))
        return rows[hypothesis.id]

    return [row(hypothesis) for hypothesis in hypotheses]


def unsettled_hypotheses(
    records: Iterable[TrialRecord], hypotheses: Sequence[Hypothesis], objective: Objective
) -> list[str]:
    """Keys of the configurations that more launches would settle, the nearest to it first."""
    records = tuple(records)
    keys = {record.number: record.key for record in records}
    needs: dict[str, int] = {}
    for row in ledger(records, hypotheses, objective):
        more = launches_to_decide(row.effect, objective.decision) if row.effect else None
        if row.verdict == "inconclusive" and more is not None:
            needs.setdefault(keys[row.trials[0]], more)
    return sorted(needs, key=lambda key: needs[key])


def null_results(rows: Sequence[LedgerRow]) -> list[str]:
    """What the nulls locate: two of one kind, and no effect of that kind, rule a bottleneck out."""
    kinds = dict.fromkeys(row.attacks for row in rows if row.attacks)
    sentences = []
    for kind in kinds:
        tested = [row for row in rows if row.attacks == kind and row.effect is not None]
        nulls = [row for row in tested if row.verdict == "no effect"]
        moved = any(row.attacks == kind and row.verdict in ("helps", "regresses") for row in rows)
        if len(nulls) >= 2 and not moved:
            sentences.append(_located(nulls, kind))
    return sentences


def _located(nulls: Sequence[LedgerRow], kind: str) -> str:
    """On how many launches it rests; of a single one only what seems."""
    counts = [row.effect.launches for row in nulls if row.effect is not None]
    if max(counts) == 1:
        names = ", ".join(row.id for row in nulls)
        return (
            f"{names} did nothing in one launch each: {kind} seems not to be where the time goes."
        )
    named = [
        f"{row.id} ({n} {'launch' if n == 1 else 'launches'})"
        for row, n in zip(nulls, counts, strict=True)
    ]
    is_not = "seems not to be" if min(counts) == 1 else "is not"
    return f"{', '.join(named)} did nothing: {kind} {is_not} where the time goes."


def _row(
    arms: Arms, hypothesis: Hypothesis, parents: Sequence[LedgerRow], idle: str | None
) -> LedgerRow:
    launches = _launches(arms, hypothesis)
    failed = _telling_failure(launches)
    if idle is not None and not launches:
        finding = _Finding(verdict="no effect", words=f"no effect: {idle}", cause=idle)
    elif any(record in arms.baseline for record in launches):
        finding = _same_as_baseline(launches)
    elif failed is None and not any(record.outcome == "completed" for record in launches):
        finding = _unmeasured(launches, parents)
    else:
        over, control = _control(arms, parents)
        rungs = _rung_effects(arms, launches, control)
        if failed is None:
            finding = _measured(arms, launches, control, rungs, over)
        else:
            finding = _died(arms, launches, failed, rungs)
        finding = replace(finding, over=over, rungs=rungs)
    low, high = hypothesis.gain_percent
    said = "".join(
        f"; {each}" for each in [*_overridden(arms, hypothesis), *_admitted(arms, launches)]
    )
    expected = f"; {low:g} to {high:g} % was expected" if finding.effect else ""
    return LedgerRow(
        id=hypothesis.id,
        claim=hypothesis.claim,
        attacks=hypothesis.attacks,
        expected_percent=hypothesis.gain_percent,
        verdict=finding.verdict,
        effect=finding.effect,
        over=finding.over,
        rungs=finding.rungs,
        dies_at=finding.dies_at,
        cause=finding.cause,
        words=f"{finding.words}{said}{expected}",
        trials=tuple(record.number for record in launches),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    verdict: Verdict
    words: str
    cause: str = ""
    effect: Effect | None = None
    over: str = BASELINE
    rungs: tuple[RungEffect, ...] = ()
    dies_at: float | None = None


def _launches(arms: Arms, hypothesis: Hypothesis) -> list[TrialRecord]:
    """The launches that tell of it; another's where it resolved to the same arguments, none where
    one server stood for several: that is no verdict's ground."""
    stated = [arms.original(r) for r in arms.records if r.hypothesis == hypothesis.id]
    keys = {record.key for record in stated}
    seen = (r for r in arms.records if not r.replicas.extrapolated)
    group = [r for r in seen if r.key in keys and r.outcome != "duplicate"]
    fresh = [r for r in group if r.kind == "confirm" and r.tells]
    if len(fresh) >= FRESH_LAUNCHES:
        return fresh
    return [r for r in group if r.outcome != "invalid"] or group


def _overridden(arms: Arms, hypothesis: Hypothesis) -> list[str]:
    """Which of its own settings the engine changed, and by whose word."""
    stated = (record for record in arms.records if record.hypothesis == hypothesis.id)
    return list(dict.fromkeys(str(each) for record in stated for each in record.overridden))


def _admitted(arms: Arms, launches: Sequence[TrialRecord]) -> list[str]:
    """That its output differs and counts all the same, since the study admits that."""
    if not arms.objective.admits:
        return []
    differing = (arms.outputs.differs(record.number) for record in launches)
    return [f"its output is {said}, which the study admits" for said in differing if said][:1]


def _telling_failure(launches: Sequence[TrialRecord]) -> TrialRecord | None:
    """A failure by the configuration's fault; the host's only where it came twice, and alone."""
    own = next((record for record in launches if counts_against(record)), None)
    failed = [record for record in launches if record.outcome == "failed"]
    return own or (failed[-1] if len(failed) == len(launches) > 1 else None)


def _control(arms: Arms, parents: Sequence[LedgerRow]) -> tuple[str, tuple[TrialRecord, ...]]:
    """The parent where it alone was built upon and moves something, else the baseline."""
    if len(parents) == 1 and parents[0].verdict in ("helps", "regresses"):
        numbers = set(parents[0].trials)
        return parents[0].id, tuple(r for r in arms.records if r.number in numbers)
    return BASELINE, arms.baseline


def _rung_effects(
    arms: Arms, launches: Sequence[TrialRecord], control: Sequence[TrialRecord]
) -> tuple[RungEffect, ...]:
    decision = arms.objective.decision
    ladder = [rung.level for rung in arms.objective.ladder]
    by_rate = arms.objective.by_rate
    found = ((level, compare(arms, launches, control, rung=level)) for level in ladder)
    return tuple(
        RungEffect(level=level, by_rate=by_rate, effect=effect, judgement=judge(effect, decision))
        for level, effect in found
        if effect is not None
    )


def _same_as_baseline(launches: Sequence[TrialRecord]) -> _Finding:
    cause = f"the server runs with the baseline's own arguments (trial {launches[0].number})"
    return _Finding(verdict="no effect", words=f"no effect: {cause}", cause=cause)


def _unmeasured(launches: Sequence[TrialRecord], parents: Sequence[LedgerRow]) -> _Finding:
    parent = next((row for row in parents if row.verdict in DEAD_ENDS), None)
    if not launches and parent is not None:
        cause = f"it builds on {parent.id}, which is {parent.verdict}"
        return _Finding(verdict="moot", words=f"moot: {cause}", cause=cause)
    if not launches:
        return _Finding(verdict="not run", words="not run")
    last = launches[-1]
    void = f"the measurement was void {last.void_because}" if last.outcome == "invalid" else ""
    said = void or f"trial {last.number} was {last.outcome}"
    cause = last.failure.cause if last.failure else said
    return _Finding(verdict="not run", words=f"not measured: {cause}", cause=cause)


def _measured(
    arms: Arms,
    launches: Sequence[TrialRecord],
    control: Sequence[TrialRecord],
    rungs: Sequence[RungEffect],
    over: str,
) -> _Finding:
    effect = compare(arms, launches, control)
    decision = arms.objective.decision
    if effect is None:
        cause = f"it and {over} were not both measured on the whole ladder"
        return _Finding(verdict="inconclusive", words=f"inconclusive: {cause}", cause=cause)
    verdict = judge(effect, decision)
    times = "one launch" if effect.launches == 1 else f"{effect.launches} launches"
    said = f"{_VERDICT_WORDS[verdict]}: {effect.judged(verdict)} over {over} from {times}"
    if verdict == "no effect":
        said += f", inside the band of {decision.equivalence_percent:g} % that counts as none"
    if verdict == "inconclusive":
        more = launches_to_decide(effect, decision)
        said += f"; {more_words(more)}" if more else ""
    return _Finding(verdict=verdict, effect=effect, words=f"{said}{_regimes(rungs)}")


def _died(
    arms: Arms,
    launches: Sequence[TrialRecord],
    failed: TrialRecord,
    rungs: Sequence[RungEffect],
) -> _Finding:
    cause = failed.failure.cause if failed.failure else "no cause was recorded"
    phase = failed.failure.phase if failed.failure else "starting"
    if failed.failure is not None and failed.failure.kind == WRONG_OUTPUT:
        return _Finding(verdict="wrong output", words=f"wrong output: {cause}", cause=cause)
    if not failed.rungs and phase not in ("ready", "serving"):
        return _Finding(
            verdict="blocked", words=f"blocked: dies while {phase}: {cause}", cause=cause
        )
    reached = {rung.level for rung in failed.rungs}
    ladder = (rung.level for rung in arms.objective.ladder)
    dies_at = next((level for level in ladder if level not in reached), None)
    died = "dies" if dies_at is None else f"dies at {arms.objective.said(dies_at)}"
    if len(launches) > 1:
        died += f" in {sum(map(counts_against, launches))} of {len(launches)} launches"
    words = f"{', '.join([*_by_rung(rungs), died])}: {cause}"
    return _Finding(verdict="crashes", words=words, cause=cause, dies_at=dies_at)


def _by_rung(rungs: Sequence[RungEffect]) -> list[str]:
    """`regresses at 1 (-9.8 %) and 10 (-12.1 %)`, a phrase for each judgement that occurs."""
    phrases: dict[Judgement, list[str]] = {}
    for rung in rungs:
        at = level_words(rung.level, by_rate=rung.by_rate)
        gain = f"{at} ({rung.effect.gain_percent:+.1f} %)"
        phrases.setdefault(rung.judgement, []).append(gain)
    return [f"{_VERDICT_WORDS[said]} at {_and(where)}" for said, where in phrases.items()]


def _regimes(rungs: Sequence[RungEffect]) -> str:
    """Rungs that pull against each other, which one number for the ladder hides."""
    moved = [rung for rung in rungs if rung.judgement in ("helps", "regresses")]
    both = len({rung.judgement for rung in moved}) == 2
    return f"; {', '.join(_by_rung(moved))}" if both else ""


def _and(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
