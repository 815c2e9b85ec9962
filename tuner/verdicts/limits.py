"""Who keeps the limits of an objective, and who breaks them by how much, in words. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.definitions.counted import counted
from tuner.records import TrialRecord
from tuner.verdicts.arms import Arms
from tuner.verdicts.outputs import WRONG_OUTPUT
from tuner.verdicts.score import Breach, slo_breaches


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How many of the configurations beside the baseline kept every limit in every launch.

    Of those `measured` over the whole ladder; `nearest` is the one launch, of all that broke a
    limit, whose worst number is nearest to it: its trial, and that number. None where no launch
    that broke one shows a number for each limit that it broke.
    """

    measured: int
    within: int
    nearest: tuple[int, Breach] | None

    @property
    def none(self) -> bool:
        """Whether configurations were measured and every one of them breaks a limit."""
        return self.measured > 0 and self.within == 0


def kept(arms: Arms) -> Kept:
    """What the configurations beside the baseline make of the limits."""
    whole = [g for g in arms.candidates().values() if arms.scores(g) and not _wrong(g)]
    clean = [group for group in whole if not any(_breaches(arms, record) for record in group)]
    launches = [*arms.baseline, *(record for group in whole for record in group)]
    tried = [record for record in launches if arms.scores([record])]
    broke = {
        record.number: worst(found)
        for record in tried
        if (found := _breaches(arms, record)) and all(breach.found is not None for breach in found)
    }
    nearest = min(broke.items(), key=lambda pair: _times(pair[1]), default=None)
    return Kept(measured=len(whole), within=len(clean), nearest=nearest)


def baseline_breaches(arms: Arms) -> tuple[Breach, ...]:
    """The limits that the baseline broke, where most of its launches broke one."""
    found = [_breaches(arms, record) for record in arms.baseline if record.rungs]
    broken = [breaches for breaches in found if breaches]
    return tuple(b for each in broken for b in each) if 2 * len(broken) > len(found) else ()


def broken_words(arms: Arms, launches: Sequence[TrialRecord]) -> str:
    """`breaks LIMIT at 8: found 9 in 2 of 3 launches`, by the worst number; empty where none."""
    measured = [record for record in launches if record.rungs]
    found = [breaches for r in measured if (breaches := _breaches(arms, r))]
    if not found:
        return ""
    said = f"breaks {worst(b for breaches in found for b in breaches)}"
    return said + (f" in {len(found)} of {len(measured)} launches" if len(measured) > 1 else "")


def worst(breaches: Iterable[Breach]) -> Breach:
    """The one furthest from its limit, as a ratio; what could not be seen comes last."""
    return max(breaches, key=_times)


def infeasible_words(breaches: Sequence[Breach], found: Kept) -> str:
    """That nobody keeps the limits, or who alone does; empty where that is not so."""
    if not found.none:
        return ""
    nearest = ""
    if found.nearest is not None:
        trial, breach = found.nearest
        nearest = f"; nearest to its limit is trial {trial}: {breach}"
    one = found.measured == 1
    those = f"the {counted(found.measured, 'other configuration')} that {'was' if one else 'were'}"
    break_one = f"{those} measured {'breaks' if one else 'break'} one"
    if not breaches:
        return f"No configuration beats the baseline: it keeps every limit, {break_one}{nearest}."
    return (
        f"Nothing is feasible: the baseline breaks {worst(breaches)}, and"
        f" {break_one.removesuffix(' one')} a limit too{nearest}."
    )


def unconfirmed_words(breaches: Sequence[Breach], found: Kept, why: str) -> str:
    """That some configuration kept the limits where the baseline does not, and is no winner yet."""
    return (
        f"The baseline breaks {worst(breaches)}; {found.within} of"
        f" {counted(found.measured, 'other configuration')} kept every limit, and none is a winner"
        f" yet: {why}."
    )


def output_words(arms: Arms, winner_key: str | None) -> str:
    """That a winner is admitted though its output differs; else who looked faster and gave another
    output. Empty where there is no such thing to say."""
    if winner_key is not None:
        launches = (r.number for r in arms.records if r.key == winner_key)
        said = next(filter(None, map(arms.outputs.differs, launches)), "")
        return f" Its output differs, which the study admits: {said}." if said else ""
    baseline = [sample.value for sample in arms.scores(arms.baseline)]
    bar = math.fsum(baseline) / len(baseline) if baseline else math.inf
    others = [r for r in arms.records if arms.outputs.differs(r.number)]
    faster = {s.value: r.number for r in others for s in arms.scores([r]) if s.value > bar}
    if not faster:
        return ""
    number = faster[max(faster)]
    return f" Trial {number} looked faster: its output is {arms.outputs.differs(number)}."


def _wrong(group: Iterable[TrialRecord]) -> bool:
    return any(r.failure is not None and r.failure.kind == WRONG_OUTPUT for r in group)


def _breaches(arms: Arms, record: TrialRecord) -> tuple[Breach, ...]:
    return slo_breaches(record.rungs, arms.objective)


def _times(breach: Breach) -> float:
    """How many times beyond its limit; never the worst where there was nothing to see."""
    operator, bound = breach.limit.split()[-2:]
    if breach.found is None:
        return 0.0
    beyond, within = (breach.found, float(bound))
    if operator.startswith(">"):
        beyond, within = within, beyond
    return beyond / within if within else math.inf
