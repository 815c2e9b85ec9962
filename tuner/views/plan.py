"""The night on paper: what would be launched, in which order, how long, and what does not fit."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from tuner.definitions.space import Configuration, flag_of
from tuner.definitions.validation import LoadedStudy
from tuner.definitions.workload import Workload
from tuner.engines.common import SIZE_FLAGS
from tuner.frozen import Frozen
from tuner.night.budget import BudgetClock
from tuner.night.foresight import Use, foresee, to_run
from tuner.night.launches import (
    expected_launch_s,
    ladder_s,
    launch_command,
    longest_ladder_s,
    replicas,
)
from tuner.night.schedule import confirm_launches, finalist_count, launches_made
from tuner.night.workload import workload_of
from tuner.records import TrialRecord
from tuner.views.results import rehearsal
from tuner.views.scope import Scope, scope

ASSUMED = (
    "Counted for the longest night: every hypothesis serves and stays undecided, and the search "
    "finds what is launched afresh. What is not needed goes to the search."
)
ONE_HOST = (
    "Time is counted for one host: each further one of the Ray cluster makes as many launches."
)


class PlannedPart(Frozen):
    """A part of the night; `dropped` launches do not fit the budget."""

    phase: str
    what: str
    launches: int
    dropped: int
    minutes: float
    command: str | None = None


class Plan(Frozen):
    """The parts in order, for the budget that is left.

    `assumed` is what was taken for granted where a launch is yet to decide, or hosts are yet to be
    found; `dropped_hypotheses` those that the budget has no launch for; `scope` what of the space
    is not searched, `workload` what servers are asked, and `unverified` what could not be verified
    on this machine, `notes` what is known of flags that are deprecated or dead, `known` what
    crashed in other studies, one sentence each.
    """

    schema_number: int = 1
    parts: list[PlannedPart]
    assumed: str = ASSUMED
    dropped_hypotheses: list[str]
    launches_made: int
    launches_left: int | None
    launch_s: float
    launch_s_measured: bool
    ladder_s: float
    longest_ladder_s: float
    minutes: float
    configurations: int | None
    scope: Scope
    workload: Workload
    unverified: list[str]
    notes: list[str]
    known: list[str]
    rehearsal: bool


def plan(
    study: LoadedStudy,
    records: Sequence[TrialRecord],
    unverified: Sequence[str] = (),
    notes: Sequence[str] = (),
    known: Sequence[str] = (),
) -> Plan:
    """What `run` would do from here; `unverified` is what this machine could not verify, `notes`
    what is known of flags, `known` of crashes elsewhere. Starts nothing."""
    launch_s = expected_launch_s(study, records)
    left = BudgetClock.of(study, records, datetime.now()).launches_left(records, 0)
    parts = list(_parts(study, records, left, launch_s))
    dropped = [part for part in parts if part.phase == "hypotheses" and part.dropped]
    return Plan(
        parts=parts,
        assumed=_assumed(study),
        dropped_hypotheses=[part.what.partition(":")[0] for part in dropped],
        launches_made=launches_made(records),
        launches_left=left,
        launch_s=round(launch_s, 1),
        launch_s_measured=any(r.outcome == "completed" for r in records),
        ladder_s=round(ladder_s(study), 1),
        longest_ladder_s=round(longest_ladder_s(study), 1),
        minutes=round(sum(part.minutes for part in parts), 1),
        configurations=study.space.size(),
        scope=scope(study),
        workload=workload_of(study),
        unverified=list(unverified),
        notes=list(notes),
        known=list(known),
        rehearsal=rehearsal(study),
    )


def _assumed(study: LoadedStudy) -> str:
    """How many hosts there are is known once the run has found them; without Ray there is one."""
    return ASSUMED if study.definition.hardware.ray is None else f"{ASSUMED} {ONE_HOST}"


def _parts(
    study: LoadedStudy, records: Sequence[TrialRecord], left: int | None, launch_s: float
) -> Iterator[PlannedPart]:
    """Each use that launches have, or are owed, in the order of a night."""
    used, owed = foresee(study, records, left)

    def part(what: str, *uses: Use, command: str | None = None) -> PlannedPart:
        launches, dropped = (sum(counted[use] for use in uses) for counted in (used, owed))
        return _part(uses[0][0], what, launches, dropped, launch_s, command)

    total = None if left is None else left + launches_made(records)
    finalists, rounds = finalist_count(total), confirm_launches(total)
    afresh = f"best {finalists} launched afresh, {rounds} times each, the baseline between"
    floor = f"baseline: noise floor{_servers(study, study.baseline)}"
    parts = [
        part(floor, ("calibrate", True), command=_command(study, study.baseline)),
        *_hypotheses(study, records, used["hypotheses", False], launch_s),
        part(f"proposals of the sampler{_smaller(study)}", ("search", False)),
        part("baseline again: drift", ("search", True)),
        part("hypotheses that one launch leaves undecided, once more each", ("settle", False)),
        part(afresh, ("confirm", False), ("confirm", True)),
        part("what is still undecided, again", ("tighten", False), ("tighten", True)),
    ]
    return (part for part in parts if part.launches or part.dropped)


def _hypotheses(
    study: LoadedStudy, records: Sequence[TrialRecord], fitting: int, launch_s: float
) -> Iterator[PlannedPart]:
    for place, hypothesis in enumerate(to_run(study, records)):
        configuration = study.space.hypothesis_configuration(hypothesis, study.baseline)
        command, fits = _command(study, configuration), place < fitting
        what = f"{hypothesis.id}: {hypothesis.claim}{_servers(study, configuration)}"
        yield _part("hypotheses", what, int(fits), int(not fits), launch_s, command)


def _part(
    phase: str, what: str, launches: int, dropped: int, launch_s: float, command: str | None
) -> PlannedPart:
    return PlannedPart(
        phase=phase,
        what=what,
        launches=launches,
        dropped=dropped,
        minutes=round(launches * launch_s / 60, 2),
        command=command,
    )


def _servers(study: LoadedStudy, configuration: Configuration) -> str:
    """How many servers such a launch starts, where the host holds more than one."""
    servers = replicas(study, configuration).launched
    return f" (a set of {servers} servers)" if servers > 1 else ""


def _smaller(study: LoadedStudy) -> str:
    """What becomes of proposals of which a host holds several, where the space has any: they are
    looked for one step from the baseline, among the flags that say how many GPUs it takes."""
    sized = [n for n, p in study.space.parameters.items() if flag_of(n, p) in SIZE_FLAGS]
    values = study.baseline.as_dict()
    near = study.space.neighbours(study.baseline) if sized else []
    other = [c for c in near if any(c.as_dict().get(name) != values.get(name) for name in sized)]
    if all(replicas(study, c).of == 1 for c in (study.baseline, *other)):
        return ""
    return "; where the host holds several servers, one for all of them"


def _command(study: LoadedStudy, configuration: Configuration) -> str:
    return launch_command(study, configuration).shell()
