"""How a sampler is told what a launch came to: one table. Pure.

| outcome   | state              | value             | crash | slo            | read by |
|-----------|--------------------|-------------------|-------|----------------|---------|
| Completed | COMPLETE           | mean of launches  | -1    | -1 or breaches | all     |
| Pruned    | PRUNED with rungs  | none              | -1    | -1             | TPE     |
| Crashed   | PRUNED             | none              | +1    | -1             | TPE     |
| Ours      | FAIL               | none              | -1    | -1             | none    |
| Duplicate | all as what it duplicates; it is never the best                         |
| in flight | RUNNING            | none              | none  | none           | TPE, GP |

To samplers that read COMPLETE alone (GP, CMA-ES, NSGA) Pruned and Crashed are COMPLETE with the
worst score so far: imputed in the memory of the search, never in a record or in the journal, and
never the best. Every finished trial has both constraints, because GP refuses anything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.search.observation import Completed, Crashed, Duplicate, Ours, Pruned, Result

State = Literal["COMPLETE", "PRUNED", "FAIL", "RUNNING"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One row of the table; a constraint above zero is broken."""

    state: State
    value: float | None = None
    crash: float = -1.0
    slo: float = -1.0
    rungs: Mapping[float, float] = field(default_factory=dict)
    imputed: bool = False

    @property
    def constraints(self) -> Mapping[str, float]:
        """By name; the same names for every trial."""
        return {"crash": self.crash, "slo": self.slo}


IN_FLIGHT = Told(state="RUNNING")


def tell_as(result: Result, worst: float | None = None) -> Told:
    """The row of a result; `worst` is the score to impute for samplers that need one."""
    match result:
        case Completed(score, rungs, breaches):
            slo = float(breaches or -1)
            return Told(state="COMPLETE", value=score, slo=slo, rungs=rungs)
        case Pruned(rungs=rungs):
            return _without_score(worst, crash=-1.0, rungs=rungs)
        case Crashed():
            return _without_score(worst, crash=1.0, rungs={})
        case Ours() | Duplicate():
            return Told(state="FAIL")


def _without_score(worst: float | None, *, crash: float, rungs: Mapping[float, float]) -> Told:
    if worst is None:
        return Told(state="PRUNED", crash=crash, rungs=rungs)
    return Told(state="COMPLETE", value=worst, crash=crash, rungs=rungs, imputed=True)


def remarks(result: Result) -> dict[str, str | int]:
    """What else people should know of a launch."""
    match result:
        case Completed(breaches=breaches):
            return {"broken limits": breaches} if breaches else {}
        case Pruned(reason=reason):
            return {"pruned": reason}
        case Crashed(kind=kind):
            return {"crash": kind}
        case Ours(reason=reason):
            return {"not its fault": reason}
        case Duplicate(of=number):
            return {"duplicate of record": number}
