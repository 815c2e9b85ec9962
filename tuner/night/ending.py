"""Whether a study came to its end, or was stopped before it: a verdict is worth less until then."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.definitions.validation import LoadedStudy
from tuner.errors import RecordsError, SpaceError
from tuner.night.budget import BudgetClock, deadline_after, span
from tuner.night.foresight import proposals
from tuner.night.launches import expected_launch_s
from tuner.night.schedule import Situation, Stop, launches_made, next_job
from tuner.records import TrialRecord, read_regular

FILE = "ended.json"


def note_end(study: LoadedStudy, records: Sequence[TrialRecord], reason: str) -> None:
    """Write down that these records are all that the budget and the questions of a study gave."""
    # Hours count what lies between launches too, which no record holds: without the note a night
    # of hours would seem to lack a launch. It says nothing else, so a full disk is no fault here.
    path = study.folder / FILE
    partial = path.with_suffix(".partial")
    with suppress(OSError):
        content = {"schema_number": 1, **_end(study, records), "reason": reason}
        partial.write_text(json.dumps(content, indent=1) + "\n")
        partial.replace(path)


def unfinished(study: LoadedStudy, records: Sequence[TrialRecord]) -> str:
    """How far a study is that did not come to its end; empty for one that did, or never began."""
    if not records or _noted(study.folder) == _end(study, records):
        return ""
    left = _launches_left(study, records)
    if not _goes_on(study, records, left):
        return ""
    made = launches_made(records)
    if left is None:
        return f"Not finished: {made} {_launches(made)} so far."
    total = made + left
    about = "" if total == study.definition.budget.trials else "about "
    return f"Not finished: {made} of {about}{total} {_launches(total)}."


def _launches(count: int) -> str:
    return "launch" if count == 1 else "launches"


def _launches_left(study: LoadedStudy, records: Sequence[TrialRecord]) -> int | None:
    """Launches that the budget had left when the last one ended: a deadline is that night's, and
    not the next that the clock will show to whoever looks."""
    budget = study.definition.budget
    clock = replace(BudgetClock.of(study, records, datetime.now()), deadline=None)
    left = clock.launches_left(records, 0)
    if budget.deadline is None:
        return left
    last = max(records, key=lambda record: span(record)[1])
    began, ended = map(datetime.fromtimestamp, span(last))
    left_s = max(0.0, (deadline_after(budget.deadline, began) - ended).total_seconds())
    until_deadline = int(left_s / expected_launch_s(study, records))
    return until_deadline if left is None else min(left, until_deadline)


def _goes_on(study: LoadedStudy, records: Sequence[TrialRecord], left: int | None) -> bool:
    """Whether a run with so many launches left would have launched anything."""
    now = Situation(
        space=study.space,
        objective=study.objective,
        baseline=study.baseline,
        records=records,
        pending=[],
        launches_left=left,
        exhausted=proposals(study, records, left) == 0,
        session_start=len(records),
    )
    try:
        return not isinstance(next_job(now), Stop)
    except SpaceError:  # the space was changed: it cannot go on, and did not end by itself
        return True


def _end(study: LoadedStudy, records: Sequence[TrialRecord]) -> dict[str, Any]:
    """What an end is one of: a further launch or another budget, and it is none."""
    return {"records": len(records), "budget": study.definition.budget.model_dump(mode="json")}


def _noted(folder: Path) -> dict[str, Any] | None:
    """The end that was noted last. One that cannot be read is none: the schedule tells as well."""
    try:
        content = json.loads(read_regular(folder / FILE, expected="a file", hint=""))
        return {"records": content["records"], "budget": content["budget"]}
    except (RecordsError, ValueError, TypeError, KeyError):
        return None
