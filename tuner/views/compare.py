"""Two configurations beside each other: how they differ, which is faster where, and how surely."""

from collections.abc import Mapping, Sequence
from typing import Literal

from tuner.definitions.domain import same
from tuner.definitions.levels import Level
from tuner.definitions.models import Value
from tuner.frozen import Frozen
from tuner.verdicts.arms import Arms
from tuner.verdicts.arms import compare as effect_of
from tuner.verdicts.effects import Effect, Judgement, judge, launches_to_decide, more_words
from tuner.verdicts.outputs import WRONG_OUTPUT
from tuner.verdicts.score import reference, slo_breaches
from tuner.views.cautions import alone_words
from tuner.views.results import outcome_words, rehearsal
from tuner.views.sides import Side

Verdict = Literal["a", "b", "within noise", "undecided", "no verdict", "not measured"]
"""Who is faster, or why that is not said: `no verdict` is one launch of each."""

REPEATED = 2
"""Launches of one of the sides that a verdict needs: of two single ones no one knows what the
engine did and what chance."""

_VERDICTS: Mapping[Judgement, Verdict] = {
    "helps": "b",
    "regresses": "a",
    "no effect": "within noise",
    "inconclusive": "undecided",
}


class Shown(Frozen):
    """One side: the launches that speak for it, what came of them, the limits that they broke."""

    name: str
    study: str
    trials: list[int]
    outcomes: list[str]
    breaches: list[str]
    extrapolated: bool


class Difference(Frozen):
    """Both numbers at one rung, or of the score where that is None; `effect` is B over A.

    Tokens or (goodput) requests per second, the geometric mean over a side's launches; the score's
    are None.
    """

    level: Level | None
    at: str
    a_rate: float | None
    b_rate: float | None
    effect: Effect | None
    verdict: Verdict
    words: str


class Comparison(Frozen):
    """B against A, in a sentence that can be quoted alone and by rung.

    `declared` and `effective` hold what differs, as [A's, B's], null for what a side leaves out or
    did not say; `notes` are what makes the two less comparable than one would think.
    """

    schema_number: int = 1
    rehearsal: bool
    scored: str
    a: Shown
    b: Shown
    sentence: str
    score: Difference
    rungs: list[Difference]
    declared: dict[str, tuple[Value, Value]]
    effective: dict[str, tuple[Value, Value]]
    notes: list[str]


def comparison(
    arms: Arms, a: Side, b: Side, *, notes: Sequence[str] = (), unsure: str = ""
) -> Comparison:
    """What can be said of two groups of launches; `arms` holds all that lend their noise.

    `unsure` is why no difference may be put down to the configurations, empty where it may.
    """
    ladder = [rung.level for rung in arms.objective.ladder]
    whole = _difference(arms, a, b, None, unsure)
    rungs = [_difference(arms, a, b, level, unsure) for level in ladder]
    return Comparison(
        rehearsal=rehearsal(a.study),
        scored=arms.objective.score,
        a=_shown(a),
        b=_shown(b),
        sentence=_sentence(a, b, whole, rungs),
        score=whole,
        rungs=rungs,
        declared=_unlike(a.declared, b.declared),
        effective=_unlike(_effective(a), _effective(b)) if _both_told(a, b) else {},
        notes=[*notes, *_cautions(a, b), *_alone(arms, a, b)],
    )


def _difference(arms: Arms, a: Side, b: Side, rung: float | None, unsure: str) -> Difference:
    found = effect_of(arms, b.launches, a.launches, rung=rung)
    if found is not None and max(found.launches, found.control_launches) < REPEATED:
        unsure = "one launch each"
    verdict: Verdict = "not measured" if found is None else "no verdict"
    if found is not None and not unsure:
        verdict = _VERDICTS[judge(found, arms.objective.decision)]
    return Difference(
        level=rung,
        at="score" if rung is None else arms.objective.said(rung),
        a_rate=_rate(arms, a, rung),
        b_rate=_rate(arms, b, rung),
        effect=found,
        verdict=verdict,
        words=_words(arms, a, b, found, verdict, unsure),
    )


def _rate(arms: Arms, side: Side, rung: float | None) -> float | None:
    rates = reference((record.rungs for record in side.launches), arms.objective)
    return None if rung is None else rates.get(rung)


def _words(
    arms: Arms, a: Side, b: Side, found: Effect | None, verdict: Verdict, unsure: str
) -> str:
    if found is None:
        return "not measured on both sides"
    if verdict == "no verdict":
        return f"{found.gain_percent:+.1f} %; {unsure}: no verdict"
    band = arms.objective.decision.equivalence_percent
    more = launches_to_decide(found, arms.objective.decision)
    meant = {
        "a": f"{a.name} is faster",
        "b": f"{b.name} is faster",
        "within noise": f"within noise: surely less than {band:g} % apart",
        "undecided": "within noise, undecided" + (f": {more_words(more)}" if more else ""),
    }[verdict]
    return f"{found.narrowed if verdict == 'within noise' else found}; {meant}"


def _sentence(a: Side, b: Side, whole: Difference, rungs: Sequence[Difference]) -> str:
    """The whole ladder first, then the rungs where they say different things."""
    said = f"{b.name} over {a.name}: "
    by_rung = _by_rung(a, b, rungs)
    if whole.effect is not None:
        several = len({rung.verdict for rung in rungs}) > 1
        return f"{said}{whole.words}.{by_rung if several else ''}"
    missing = [side.name for side in (a, b) if not any(r.rungs for r in side.launches)]
    why = f"{' and '.join(missing)} served no load" if missing else "not both ended it"
    return f"{said}no verdict on the whole ladder: {why}.{'' if missing else by_rung}"


def _by_rung(a: Side, b: Side, rungs: Sequence[Difference]) -> str:
    """Which verdict holds where."""
    words: Mapping[Verdict, str] = {
        "b": f"{b.name} is faster",
        "a": f"{a.name} is faster",
        "within noise": "within noise",
        "undecided": "undecided",
        "no verdict": "no verdict",
        "not measured": "not both measured",
    }
    parts = []
    for verdict, meant in words.items():
        where = [rung.at for rung in rungs if rung.verdict == verdict]
        parts += [f"{meant} at {_and(where)}"] if where else []
    return f" By rung: {'; '.join(parts)}."


def _and(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _shown(side: Side) -> Shown:
    failed = [r for r in side.launches if r.outcome != "completed"]
    breaches = [b for r in side.launches for b in slo_breaches(r.rungs, side.study.objective)]
    return Shown(
        name=side.name,
        study=side.of,
        trials=[record.number - side.shift for record in side.launches],
        outcomes=[f"trial {r.number - side.shift} {outcome_words(side.study, r)}" for r in failed],
        breaches=list(dict.fromkeys(str(breach) for breach in breaches)),
        extrapolated=any(record.replicas.extrapolated for record in side.launches),
    )


def _unlike(a: Mapping[str, Value], b: Mapping[str, Value]) -> dict[str, tuple[Value, Value]]:
    names = [*a, *(name for name in b if name not in a)]
    return {n: (a.get(n), b.get(n)) for n in names if not same(a.get(n), b.get(n))}


def _effective(side: Side) -> Mapping[str, Value]:
    """What the first launch that told its arguments runs with."""
    return next((record.effective for record in side.launches if record.effective), {})


def _both_told(a: Side, b: Side) -> bool:
    return bool(_effective(a) and _effective(b))


def _alone(arms: Arms, a: Side, b: Side) -> list[str]:
    """Which of the changes between the baseline and a configuration of its own study a hypothesis
    measured without the others."""
    baseline = next((s for s in (a, b) if s.launches[0].key == arms.baseline_key), None)
    other = b if baseline is a else a
    if baseline is None or a.of != b.of:
        return []
    said = alone_words(a.study, arms, other.launches[0].values)
    return [said] if said else []


def _cautions(a: Side, b: Side) -> list[str]:
    notes = []
    keys = [{r.effective_key for r in side.launches if r.effective_key} for side in (a, b)]
    if a.of == b.of and {r.key for r in a.launches} == {r.key for r in b.launches}:
        notes.append("Both are the same configuration: what differs is noise.")
    elif keys[0] & keys[1]:
        notes.append("Both run with the same arguments: what differs is noise.")
    hosts = [sorted({record.host for record in side.launches if record.host}) for side in (a, b)]
    if all(hosts) and hosts[0] != hosts[1]:
        notes.append(f"Measured on different hosts: {', '.join(hosts[0])}; {', '.join(hosts[1])}.")
    for side in (a, b):
        failures = (r.failure for r in side.launches if r.failure is not None)
        wrong = next((f.cause for f in failures if f.kind == WRONG_OUTPUT), "")
        notes += [f"{side.name} is no choice, however fast: {wrong}."] if wrong else []
    return notes
