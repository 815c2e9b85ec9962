"""A study as its engine is installed here: what its space has depends on the engine's version."""

from pathlib import Path

from tuner import engines
from tuner.definitions.models import StudyDefinition
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.definitions.versions import alike, is_version
from tuner.engines.base import LaunchSpec


def open_study(path: Path) -> LoadedStudy:
    """A study by its folder or its file, its space read for the version that it states or, where
    it states none, that is installed. Raises DefinitionError with the faults of all files."""
    return load_study(path, installed_version)


def installed_version(folder: Path, study: StudyDefinition) -> str | None:
    """The version that a study in this folder would launch; None where nobody knows."""
    spec = LaunchSpec(
        engine=study.engine, model=study.model, folder=folder, env=dict(study.fixed.env)
    )
    version = engines.version(spec)
    return version.split()[0] if version else None


def other_version(study: LoadedStudy) -> str | None:
    """A sentence where another version is installed than the study states."""
    stated = study.definition.engine.version
    installed = installed_version(study.folder, study.definition)
    if stated is None or installed is None or not is_version(installed):
        return None
    if alike(stated, installed):
        return None
    name = study.definition.engine.name
    return f"engine.version says {stated}, and the {name} that would be launched is {installed}"
