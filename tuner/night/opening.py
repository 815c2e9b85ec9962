"""A study as its engine is installed here: what its space has depends on the engine's version."""

from collections.abc import Mapping
from pathlib import Path

from tuner import engines
from tuner.definitions.models import StudyDefinition
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.definitions.versions import alike, is_version
from tuner.engines.base import LaunchSpec
from tuner.night.command_line import CommandLine, command_line
from tuner.night.environment import remembered_dead


def open_study(path: Path) -> LoadedStudy:
    """A study by its folder or its file, its space read for the version that it states or, where
    it states none, that is installed.

    Flags that its records were begun with as dead are dead in it. Raises DefinitionError with the
    faults of all files, RecordsError where what was remembered is damaged.
    """
    study = load_study(path, installed_version)
    return _knowing(study, remembered_dead(study.folder) or {})


def open_for_launches(path: Path) -> tuple[LoadedStudy, CommandLine]:
    """As `open_study`, with the engine's own command line; before the first launch its dead flags
    are those of the study. The first time this takes up to a minute."""
    study = open_study(path)
    line = command_line(study)
    if remembered_dead(study.folder) is None:
        study = _knowing(study, line.dead)
    return study, line


def _knowing(study: LoadedStudy, dead: Mapping[str, str]) -> LoadedStudy:
    return study.knowing(dead) if dead else study


def installed_version(folder: Path, study: StudyDefinition) -> str | None:
    """The version that a study in this folder would launch; None where nobody knows."""
    spec = LaunchSpec(
        engine=study.engine, model=study.model, folder=folder, env=dict(study.fixed.env)
    )
    version = engines.version(spec)
    return version.split()[0] if version else None


def conflicting_version(study: LoadedStudy) -> str | None:
    """The version that is installed, where it is another than the study states."""
    stated = study.definition.engine.version
    installed = installed_version(study.folder, study.definition)
    if stated is None or installed is None or not is_version(installed):
        return None
    return None if alike(stated, installed) else installed


def other_version(study: LoadedStudy) -> str | None:
    """A sentence where another version is installed than the study states."""
    installed, engine = conflicting_version(study), study.definition.engine
    if installed is None:
        return None
    return (
        f"engine.version says {engine.version}, and the {engine.name} that would be launched is"
        f" {installed}"
    )
