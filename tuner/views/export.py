"""The command to launch tomorrow: the winner's, or the baseline's where nothing beats it."""

import json
from collections.abc import Sequence
from typing import Literal

from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.errors import StudyChanged, TunerError
from tuner.frozen import Frozen
from tuner.night.environment import changed_since
from tuner.night.launches import launch_command
from tuner.records import TrialRecord
from tuner.verdicts.decision import conclusion
from tuner.views.results import outcome_words, rehearsal

Format = Literal["shell", "json"]


class Export(Frozen):
    """A launch as it runs when pasted, and why it is this one.

    `command` holds no port, host or seed that the tuner added, and no secret: those are asked for
    by `${NAME:?set NAME}` in the command, and are `${NAME}` elsewhere.
    """

    schema_number: int = 1
    command: str
    argv: list[str]
    env: dict[str, str]
    trial: int | None
    why: str
    rehearsal: bool


def export(study: LoadedStudy, records: Sequence[TrialRecord], trial: int | None = None) -> Export:
    """The launch of the winner, of the baseline, or of the trial that was asked for.

    Raises TunerError for a trial that does not exist; StudyChanged where a verdict is asked for of
    records that were made by other definition files.
    """
    configuration, number, why = _choose(study, records, trial)
    launch = launch_command(study, configuration)
    return Export(
        command=launch.shell(),
        argv=list(launch.shown_argv()),
        env=launch.shown_env(),
        trial=number,
        why=why,
        rehearsal=rehearsal(study),
    )


def _choose(
    study: LoadedStudy, records: Sequence[TrialRecord], trial: int | None
) -> tuple[Configuration, int | None, str]:
    if trial is not None:
        record = find(records, trial)
        why = f"Trial {trial}, as asked for: {outcome_words(study, record)}."
        return study.space.configuration(record.values), trial, why
    changed = changed_since(study)
    if changed:
        raise StudyChanged(
            f"{study.folder}: {changed}",
            hint="Put it back, or ask for one launch with --trial: which won cannot be said.",
        )
    verdict = conclusion(records, study.objective, study.baseline.key)
    winner = next((r for r in records if r.key == verdict.winner_key), None)
    if winner is None:
        return study.baseline, None, f"{verdict.sentence} This is the baseline."
    return study.space.configuration(winner.values), winner.number, verdict.sentence


def find(records: Sequence[TrialRecord], number: int) -> TrialRecord:
    """The record of that trial. Raises TunerError, naming those that exist."""
    for record in records:
        if record.number == number:
            return record
    known = f"0 to {max(r.number for r in records)}" if records else "none yet"
    raise TunerError(f"there is no trial {number}", hint=f"Trials of this study: {known}.")


def written(chosen: Export, form: Format) -> str:
    """The export in the form that was asked for, as one text."""
    if form == "json":
        return json.dumps(chosen.model_dump(), indent=1) + "\n"
    label = (
        "# REHEARSAL: nothing behind this was measured on hardware.\n" if chosen.rehearsal else ""
    )
    # The reason may quote a log, of which no line may become a command.
    why = " ".join("".join(c if c.isprintable() else " " for c in chosen.why).split())
    return f"#!/bin/sh\n{label}# {why}\n{chosen.command}\n"
