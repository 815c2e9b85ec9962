"""What is compared, by the words that people have for it: a trial, a hypothesis, changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.models import Value
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.space import shown
from tuner.definitions.validation import LoadedStudy
from tuner.errors import TunerError
from tuner.records import TrialRecord
from tuner.verdicts.arms import FRESH_LAUNCHES, Arms
from tuner.verdicts.decision import conclusion
from tuner.verdicts.ledger import ledger
from tuner.views.changed import changes
from tuner.views.export import find
from tuner.views.results import name
from tuner.views.words import said_changes

_KINDS = (
    "Name a trial by its number, or all launches of a configuration: baseline, winner, a hypothesis"
    "{ids}, or its changes as `tuner show` has them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Launches of one configuration that are held against others, and what it declares.

    Those of a second study are numbered behind the first's; `shift` is by how much.
    """

    name: str
    study: LoadedStudy
    of: str
    launches: tuple[TrialRecord, ...]
    declared: Mapping[str, Value]
    shift: int = 0


def side(study: LoadedStudy, arms: Arms, text: str) -> Side:
    """The launches that a text means.

    A number is that launch alone. A configuration stands for all its launches that were not chosen
    for their result. Raises TunerError for what is not there, naming what is.
    """
    found = find(arms.records, int(text)) if text.isdecimal() else None
    if found is not None:
        return _side(study, f"trial {found.number}", (found,))
    if text == "baseline":
        return _side(study, "the baseline", _some(arms.baseline, "the baseline"))
    if text == "winner":
        return _winner(study, arms)
    if any(hypothesis.id == text for hypothesis in study.space.hypotheses):
        return _hypothesis(study, arms, text)
    return _changed(study, arms, text)


def best(study: LoadedStudy, arms: Arms) -> Side:
    """The winner, or the baseline where nothing beats it, called by its study."""
    of = name(study)
    if conclusion(arms.records, study.objective, study.baseline.key).winner_key is None:
        launches = _some(arms.baseline, f"the baseline of {of}")
        return _side(study, f"the baseline of {of} (no winner)", launches)
    return _side(study, f"the winner of {of}", _winner(study, arms).launches)


def front_runner(study: LoadedStudy, arms: Arms) -> Side | None:
    """The winner, else the best of those that were launched afresh; None before any was."""
    found = conclusion(arms.records, study.objective, study.baseline.key)
    if found.winner_key is not None:
        return _winner(study, arms)
    measured = {f.key: f.effect.gain_percent for f in found.finalists if f.effect is not None}
    if not measured:
        return None
    best_key = max(measured, key=lambda key: measured[key])
    return _side(study, "the best finalist", arms.fresh(best_key))


def baseline(study: LoadedStudy, arms: Arms) -> Side | None:
    """All launches of the baseline; None before the first."""
    return _side(study, "the baseline", arms.baseline) if arms.baseline else None


def _side(study: LoadedStudy, called: str, launches: tuple[TrialRecord, ...]) -> Side:
    values = launches[0].values
    parameters = study.space.parameters
    declared = {n: shown(n, parameters[n], v) if n in parameters else v for n, v in values.items()}
    return Side(name=called, study=study, of=name(study), launches=launches, declared=declared)


def _some(launches: Sequence[TrialRecord], what: str) -> tuple[TrialRecord, ...]:
    if not launches:
        raise TunerError(f"{what} was not launched yet", hint="Run the study first: tuner run.")
    return tuple(launches)


def _winner(study: LoadedStudy, arms: Arms) -> Side:
    found = conclusion(arms.records, study.objective, study.baseline.key)
    if found.winner_key is None:
        raise TunerError(f"there is no winner in {name(study)}", hint=found.sentence)
    return _side(study, "the winner", arms.fresh(found.winner_key))


def _hypothesis(study: LoadedStudy, arms: Arms, wanted: str) -> Side:
    stated, key = study.space.hypotheses, study.baseline.key
    rows = ledger(arms.records, stated, study.objective, key, study.idle)
    row = next(row for row in rows if row.id == wanted)
    launches = [record for record in arms.records if record.number in row.trials]
    return _side(study, wanted, _some(launches, f"the hypothesis {wanted}"))


def _changed(study: LoadedStudy, arms: Arms, text: str) -> Side:
    """The configuration with these changes; launches that led to its choice count only where too
    few were made afterwards."""
    words = {said_changes(changes(r.values, study)): r.key for r in arms.records}
    wanted = _in_any_order(text)
    key = next((key for said, key in words.items() if _in_any_order(said) == wanted), None)
    if key is None:
        ids = [hypothesis.id for hypothesis in study.space.hypotheses]
        meant = did_you_mean(text, ["baseline", "winner", *ids, *words])
        hint = _KINDS.format(ids=f" ({', '.join(ids)})" if ids else "")
        raise TunerError(f"nothing in {name(study)} is called '{text}'{meant}", hint=hint)
    every = [r for r in arms.records if r.key == key and r.tells]
    fresh = arms.fresh(key)
    launches = fresh if len(fresh) >= FRESH_LAUNCHES else _some(every, f"'{text}'")
    return _side(study, text, launches)


def _in_any_order(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(", "))
