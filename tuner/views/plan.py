"""The night on paper: what would be launched, in which order, how long, and what does not fit."""

from collections.abc import Sequence
from datetime import datetime

from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.frozen import Frozen
from tuner.night.budget import BudgetClock
from tuner.night.launches import expected_launch_s, ladder_s, launch_command
from tuner.night.schedule import (
    CALIBRATION_LAUNCHES,
    SENTINEL_EVERY,
    confirm_launches,
    finalist_count,
    launches_made,
    moot,
    ordered,
)
from tuner.records import TrialRecord
from tuner.views.results import rehearsal


class PlannedPart(Frozen):
    """A part of the night; `dropped` launches do not fit the budget."""

    phase: str
    what: str
    launches: int
    dropped: int
    minutes: float
    command: str | None = None


class Plan(Frozen):
    """The parts in order, for the budget that is left."""

    schema_number: int = 1
    parts: list[PlannedPart]
    launches_made: int
    launches_left: int | None
    launch_s: float
    launch_s_measured: bool
    ladder_s: float
    minutes: float
    configurations: int | None
    rehearsal: bool


def plan(study: LoadedStudy, records: Sequence[TrialRecord]) -> Plan:
    """What `run` would do from here. Starts nothing."""
    launch_s = expected_launch_s(study, records)
    clock = BudgetClock.of(study, records, datetime.now())
    left = clock.launches_left(records, 0)
    parts = _within(_parts(study, records, left), left, launch_s)
    return Plan(
        parts=parts,
        launches_made=launches_made(records),
        launches_left=left,
        launch_s=round(launch_s, 1),
        launch_s_measured=any(r.outcome == "completed" for r in records),
        ladder_s=round(ladder_s(study), 1),
        minutes=round(sum(part.minutes for part in parts), 1),
        configurations=study.space.size(),
        rehearsal=rehearsal(study),
    )


def _parts(
    study: LoadedStudy, records: Sequence[TrialRecord], left: int | None
) -> list[tuple[str, str, int, str | None]]:
    """(phase, what, launches wanted, command) in the order of a night."""
    total = None if left is None else left + launches_made(records)
    measured = sum(r.kind == "baseline" and r.outcome == "completed" for r in records)
    confirmed = sum(r.kind == "confirm" for r in records)
    wanted: list[tuple[str, str, int, str | None]] = [
        (
            "calibrate",
            "baseline: noise floor",
            max(0, CALIBRATION_LAUNCHES - measured),
            _command(study, study.baseline),
        )
    ]
    tried = {r.hypothesis for r in records if r.outcome != "interrupted"}
    for h in ordered(study.space.hypotheses):
        if h.id not in tried and not moot(h, study.space, records):
            configuration = study.space.hypothesis_configuration(h, study.baseline)
            wanted.append(("hypotheses", f"{h.id}: {h.claim}", 1, _command(study, configuration)))
    finalists, rounds = finalist_count(total), confirm_launches(total)
    fresh = max(0, finalists * rounds - confirmed)
    between = max(0, rounds - 1) if fresh else 0
    search = _search_launches(study, sum(part[2] for part in wanted), fresh + between, left)
    sentinels = search // (SENTINEL_EVERY + 1)
    wanted += [
        ("search", "proposals of the sampler", search - sentinels, None),
        ("search", "baseline again: drift", sentinels, None),
        (
            "confirm",
            f"best {finalists} launched afresh, {rounds} times each, the baseline between",
            fresh + between,
            None,
        ),
    ]
    return [part for part in wanted if part[2]]


def _search_launches(study: LoadedStudy, before: int, after: int, left: int | None) -> int:
    size = study.space.size()
    if left is None:
        return size or 0
    room = max(0, left - before - after)
    return room if size is None else min(room, size)


def _command(study: LoadedStudy, configuration: Configuration) -> str:
    return launch_command(study, configuration).shell()


def _within(
    wanted: Sequence[tuple[str, str, int, str | None]], left: int | None, launch_s: float
) -> list[PlannedPart]:
    parts = []
    room = left
    for phase, what, launches, command in wanted:
        kept = launches if room is None else min(launches, room)
        room = None if room is None else room - kept
        parts.append(
            PlannedPart(
                phase=phase,
                what=what,
                launches=kept,
                dropped=launches - kept,
                minutes=round(kept * launch_s / 60, 2),
                command=command,
            )
        )
    return parts
