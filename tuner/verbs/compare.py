"""Hold two trials, two configurations or two studies against each other. Starts nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.definitions.models import Value
from tuner.definitions.paths import absence
from tuner.definitions.validation import LoadedStudy
from tuner.errors import StudyChanged, TunerError
from tuner.flags.secrets import HIDDEN, is_secret_flag, is_secret_variable
from tuner.night.environment import changed_since, remembered, unlike
from tuner.night.launches import launch_spec
from tuner.night.opening import open_study
from tuner.records import Records, TrialRecord
from tuner.verdicts.arms import Arms
from tuner.verdicts.arms import compare as effect_of
from tuner.verdicts.effects import judge
from tuner.views.compare import Comparison, comparison
from tuner.views.sides import best, side

_MUST_BE_ALIKE = (
    *("engine version", "images", "hardware", "engine", "model", "objective", "surface"),
)
"""What two studies need in common for numbers of theirs to be held against each other; what they
declare on top of it is what is compared."""


def compare(path: Path, a: str, b: str | None) -> Comparison:
    """B over A within one study, or without B the winner of the study A over that of the first.

    Raises TunerError for what does not exist, StudyChanged for numbers that were measured on
    something else than each other.
    """
    study = open_study(path)
    if b is not None:
        return _within(study, a, b)
    if absence(Path(a)):
        raise TunerError(
            f"'{a}' alone is nothing to compare with",
            hint="Name two trials or configurations of the study, or the folder of a second study.",
        )
    if study.folder.resolve() == Path(a).resolve():
        raise TunerError(
            f"'{path}' and '{a}' are one study",
            hint="A study cannot be held against itself; name two of its configurations, such as"
            " baseline winner.",
        )
    return _between(study, open_study(Path(a)))


def _within(study: LoadedStudy, a: str, b: str) -> Comparison:
    changed = changed_since(study)
    if changed:
        raise StudyChanged(
            f"{study.folder}: {changed}",
            hint="Put it back: names and limits are no longer those that the records are of.",
        )
    arms = Arms(Records(study.folder), study.objective, study.baseline.key)
    one, other = side(study, arms, a), side(study, arms, b)
    both = {r.number for r in one.launches} & {r.number for r in other.launches}
    if both:
        shared = ", ".join(str(number) for number in sorted(both))
        raise TunerError(
            f"'{a}' and '{b}' have launches in common: trial {shared}",
            hint="A launch cannot be held against itself.",
        )
    return comparison(arms, one, other)


def _between(first: LoadedStudy, second: LoadedStudy) -> Comparison:
    _refuse_other_environment(first, second)
    mine, theirs = (Arms(Records(s.folder), s.objective, s.baseline.key) for s in (first, second))
    a, b = best(first, mine), best(second, theirs)
    shift = max(record.number for record in mine.records) + 1
    both = Arms(
        [*mine.records, *_behind(theirs.records, shift)], first.objective, mine.baseline_key
    )
    moved = _moved(both, first, second, mine.baseline, _behind(theirs.baseline, shift))
    return comparison(
        both,
        replace(a, declared=_declared(first, a.launches[0])),
        replace(
            b,
            declared=_declared(second, b.launches[0]),
            launches=_behind(b.launches, shift),
            shift=shift,
        ),
        notes=[moved.said],
        unsure="the machine changed between the studies" if moved.beyond_noise else "",
    )


def _refuse_other_environment(first: LoadedStudy, second: LoadedStudy) -> None:
    identities = []
    for study in (first, second):
        identity, changed = remembered(study.folder), changed_since(study)
        if changed:
            raise StudyChanged(f"{study.folder}: {changed}", hint="Put it back.")
        if identity is None:
            raise TunerError(f"{study.folder}: nothing was measured yet", hint="Run it first.")
        identities.append({name: identity.get(name) for name in _MUST_BE_ALIKE})
    differences = unlike(*identities)
    if differences:
        raise StudyChanged(
            f"{first.folder} and {second.folder} were not measured alike: {differences[0]}"
            + (f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""),
            hint="Numbers can be held against each other where engine, hardware, model and"
            " objective are the same.",
        )


def _behind(records: Iterable[TrialRecord], shift: int) -> tuple[TrialRecord, ...]:
    """Records of a second study numbered behind the first's; no configuration of the one is
    taken for one of the other, since what both declare may be fixed differently."""
    return tuple(
        record.model_copy(
            update={
                "number": record.number + shift,
                "rescored": {of + shift: found for of, found in record.rescored.items()},
                "key": f"second {record.key}",
                "effective_key": record.effective_key and f"second {record.effective_key}",
                "duplicate_of": None
                if record.duplicate_of is None
                else record.duplicate_of + shift,
            }
        )
        for record in records
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    said: str
    beyond_noise: bool


def _moved(
    arms: Arms,
    first: LoadedStudy,
    second: LoadedStudy,
    ours: Sequence[TrialRecord],
    theirs: Sequence[TrialRecord],
) -> _Moved:
    """What the baseline, where both have the same, says of the time between the studies."""
    alike = bool(ours and theirs) and _declared(first, ours[0]) == _declared(second, theirs[0])
    effect = effect_of(arms, theirs, ours) if alike else None
    if effect is None:
        return _Moved(
            said="The studies have no baseline in common: nothing tells whether the machine"
            " changed between them.",
            beyond_noise=False,
        )
    return _Moved(
        said=f"The baseline of both, measured in the second over the first: {effect}.",
        beyond_noise=judge(effect, arms.objective.decision) in ("helps", "regresses"),
    )


def _declared(study: LoadedStudy, record: TrialRecord) -> Mapping[str, Value]:
    """All that a launch was asked for, by flag and variable: what one study fixes the other may
    search."""
    values = {k: v for k, v in record.values.items() if k in study.space.parameters}
    spec = launch_spec(study, study.space.configuration(values))
    flags = {n: HIDDEN if is_secret_flag(n, _text(v)) else v for n, v in spec.flags.items()}
    env = {n: HIDDEN if is_secret_variable(n, v) else v for n, v in spec.env.items()}
    return {**({"build": spec.build} if spec.build else {}), **flags, **env}


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
