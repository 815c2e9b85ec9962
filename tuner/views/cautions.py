"""What to know of a configuration before it serves, beside its number."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tuner.definitions.domain import same
from tuner.definitions.models import Value
from tuner.definitions.validation import LoadedStudy
from tuner.engines.warned import like
from tuner.records import TrialRecord
from tuner.verdicts.arms import Arms
from tuner.verdicts.ledger import ledger
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
    """Which of several changes a hypothesis measured without the others, and which none did; empty
    for a single one."""
    ours = changes(values, study)
    if len(ours) < 2:
        return ""
    by_number = {record.number: record for record in arms.records}
    rows = ledger(
        arms.records, study.space.hypotheses, arms.objective, arms.baseline_key, study.idle
    )
    said: dict[str, str] = {}
    for row in rows:
        alone = changes(by_number[row.trials[0]].values, study) if row.effect else {}
        if len(alone) == 1 and row.effect and all(same(ours.get(n), v) for n, v in alone.items()):
            times = "one launch" if row.effect.launches == 1 else f"{row.effect.launches} launches"
            said[next(iter(alone))] = f"{said_changes(alone)}: {row.verdict}, from {times}"
    left = {name: value for name, value in ours.items() if name not in said}
    parts = [f"measured alone: {'; '.join(said.values())}"] if said else []
    parts += [f"never measured alone: {said_changes(left)}"] if left else []
    return f"Of its {len(ours)} changes, {'; '.join(parts)}."


def _warnings(arms: Arms, launches: Sequence[TrialRecord]) -> list[str]:
    """What all that told anything warn of, and no launch of the baseline does."""
    told = [_by_likeness(record) for record in launches if record.facts.warnings]
    usual = {key for record in arms.baseline for key in _by_likeness(record)}
    if not told or not any(record.facts.warnings for record in arms.baseline):
        return []
    new = [text for key, text in told[0].items() if all(key in each for each in told[1:])]
    new = [text for text in new if like(text) not in usual]
    more = f" And {len(new) - _WARNINGS} more." if len(new) > _WARNINGS else ""
    quoted = " ".join(f'"{text}"' for text in new[:_WARNINGS])
    return [f"The engine warns, and does not with the baseline: {quoted}{more}"] if new else []


def _by_likeness(record: TrialRecord) -> Mapping[str, str]:
    return {like(text): text for text in record.facts.warnings}


def _cores(launches: Sequence[TrialRecord]) -> list[str]:
    """On which cores it was measured: the load generator had the others."""
    first = launches[0]
    if first.rehearsal or not first.server_cores or first.server_cores == first.client_cores:
        return []
    servers, client = listed(first.server_cores), listed(first.client_cores)
    return [
        f"Measured with the servers on cores {servers} and the load generator on {client}: "
        f"`taskset -c {servers}` before the command gives the same."
    ]


def listed(cores: Iterable[int]) -> str:
    """Cores as the kernel and taskset write them: 0-6,8."""
    ordered = sorted(cores)
    runs = [
        [core for _, core in run]
        for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
