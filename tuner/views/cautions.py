"""What to know of a configuration before it serves, beside its number."""

from collections.abc import Mapping, Sequence

from tuner.definitions.domain import same
from tuner.definitions.models import Value
from tuner.definitions.validation import LoadedStudy
from tuner.engines.warned import like
from tuner.hosts.slots import list_of
from tuner.records import TrialRecord
from tuner.verdicts.arms import Arms, compare
from tuner.verdicts.effects import judge
from tuner.views.changed import changes
from tuner.views.words import said_changes

_WARNINGS = 3


def cautions(study: LoadedStudy, arms: Arms, launches: Sequence[TrialRecord]) -> list[str]:
    """Of one configuration's launches: which of its changes nobody measured alone, what the engine
    warns of and does not with the baseline, which cores its servers had."""
    if not launches:
        return []
    alone = alone_words(study, arms, launches[0].values)
    return [*([alone] if alone else []), *_warnings(arms, launches), *_cores(launches)]


def alone_words(study: LoadedStudy, arms: Arms, values: dict[str, Value]) -> str:
    """Which of several changes were measured without the others, and which never; empty for a
    single one."""
    ours = changes(values, study)
    if len(ours) < 2:
        return ""
    said = {
        name: f"{said_changes({name: ours[name]})}: {_judged(arms, launches)}"
        for name, launches in _alone(study, arms, ours).items()
    }
    left = {name: value for name, value in ours.items() if name not in said}
    parts = [f"measured alone: {'; '.join(said.values())}"] if said else []
    parts += [f"never measured alone: {said_changes(left)}"] if left else []
    return f"Of its {len(ours)} changes, {'; '.join(parts)}."


def _alone(
    study: LoadedStudy, arms: Arms, ours: Mapping[str, Value]
) -> dict[str, list[TrialRecord]]:
    """The launches that measured one of these changes and made no other."""
    alone: dict[str, list[TrialRecord]] = {}
    for record in arms.records:
        made = changes(record.values, study)
        name = next(iter(made), "")
        if (
            record.outcome == "completed"
            and not record.replicas.extrapolated
            and len(made) == 1
            and name in ours
            and same(ours[name], made[name])
        ):
            alone.setdefault(name, []).append(record)
    return alone


def _judged(arms: Arms, launches: Sequence[TrialRecord]) -> str:
    """What came of them; those that the search chose for their result judge nothing."""
    stated = [record for record in launches if record.kind != "search"]
    count = len(stated or launches)
    times = "one launch" if count == 1 else f"{count} launches"
    found = compare(arms, stated, arms.baseline) if stated else None
    if found is None:
        return f"by the search alone, in {times}"
    return f"{judge(found, arms.objective.decision)}, from {times}"


def _warnings(arms: Arms, launches: Sequence[TrialRecord]) -> list[str]:
    """What all launches that told warn of, and none of the baseline's does."""
    told = [each for record in launches if (each := _by_likeness(record)) is not None]
    usual = [each for record in arms.baseline if (each := _by_likeness(record)) is not None]
    if not told or not usual:
        return []
    new = [text for key, text in told[0].items() if all(key in each for each in told[1:])]
    new = [text for text in new if not any(like(text) in each for each in usual)]
    more = f" And {len(new) - _WARNINGS} more." if len(new) > _WARNINGS else ""
    quoted = " ".join(f'"{text}"' for text in new[:_WARNINGS])
    return [f"The engine warns, and does not with the baseline: {quoted}{more}"] if new else []


def _by_likeness(record: TrialRecord) -> Mapping[str, str] | None:
    warnings = record.facts.warnings
    return None if warnings is None else {like(text): text for text in warnings}


def _cores(launches: Sequence[TrialRecord]) -> list[str]:
    """On which cores they were measured, where they agree: the load generator had the others."""
    cores = {(tuple(r.server_cores), tuple(r.client_cores)) for r in launches if r.server_cores}
    if launches[0].rehearsal or len(cores) != 1:
        return []
    ((servers, client),) = cores
    if servers == client:
        return []
    return [
        f"Measured with the servers on the host's cores {list_of(servers)} and the load generator "
        f"on {list_of(client)}."
    ]
