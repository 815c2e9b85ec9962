"""A new study from the launch command that somebody has."""

import os
import shlex
from pathlib import Path
from typing import TextIO

from tuner.definitions.paths import STUDY_FILE, absence
from tuner.errors import DefinitionError, TunerError
from tuner.frozen import Frozen
from tuner.night.opening import open_study
from tuner.starting import source
from tuner.starting.drafting import Asked, Drafted, draft
from tuner.starting.library import Definition
from tuner.starting.pasted import Pasted
from tuner.starting.publish import publish, refuse_existing
from tuner.starting.writing import study_text


class Started(Frozen):
    """A study that was written: what it starts from, and what of the source is not in it.

    `copied` are the definition files that lie in the study's folder, since no tree around it has
    them; `baseline` and `fixed` name parameters, flags and variables; `secrets` are the variables
    to be set before a run; `serve` is where an exported command listens; `added` is what the
    baseline's launch says beyond the source: defaults of the space that cannot be left to the
    engine.
    """

    schema_number: int = 1
    study: str
    engine: str
    model: str
    space: str
    objective: str
    copied: list[str]
    gpus: int
    baseline: list[str]
    fixed: list[str]
    secrets: list[str]
    serve: dict[str, str | int | list[str]] = {}
    left_out: list[str]
    added: list[str]


def init(
    name: Path,
    launch: str,
    stdin: TextIO,
    *,
    service: str | None = None,
    asked: Asked | None = None,
) -> Started:
    """Write the study of that name from a launch: a command, a file, or `-` for standard input.

    Nothing is written where it fails. Raises TunerError where a part that matters cannot be read,
    StudyError where something is there already or cannot be written.
    """
    folder = folder_of(name)
    refuse_existing(folder)
    pasted = source.find(launch, stdin, os.environ, service)
    origin = _origin(launch, pasted)
    try:
        drafted = draft(pasted, folder, origin, asked or Asked())
    except DefinitionError:
        raise
    except TunerError as error:
        raise TunerError(f"{origin}: {error.message}", hint=error.hint) from None
    files = {STUDY_FILE: study_text(drafted.draft)}
    files |= {each.copy_name: _content(each) for each in _copied(drafted)}
    publish(folder, files, open_study)
    return _started(folder, drafted)


def words_of(engine: str, model: str) -> str:
    """The shortest launch of an engine, to begin from nothing."""
    flag = "" if engine == "vllm" else "--model-path "
    return f"{engine} serve {flag}{shlex.quote(model)}"


def folder_of(name: Path) -> Path:
    """Where a study of that name lies: in studies/ unless the name is a path. Raises TunerError."""
    if name.name in {"", ".."} or name.name.startswith("."):
        raise TunerError(f"'{name}' is no name for a study", hint="A word, such as glm5-8gpu.")
    if not str(name).isprintable():
        raise TunerError(
            f"{str(name)!r} is no name for a study: it has a character that cannot be printed",
            hint="A word, such as glm5-8gpu.",
        )
    return name if len(name.parts) > 1 else Path("studies") / name


def _origin(launch: str, pasted: Pasted) -> str:
    if "\n" not in launch and not absence(Path(launch)):
        return f"{Path(launch).name}, {pasted.where}" if pasted.where else Path(launch).name
    return "standard input" if launch == "-" else "a launch command"


def _copied(drafted: Drafted) -> list[Definition]:
    return [each for each in (drafted.space, drafted.objective) if each.copied]


def _content(definition: Definition) -> str:
    return definition.path.read_text(encoding="utf-8")


def _started(folder: Path, drafted: Drafted) -> Started:
    made = drafted.draft
    return Started(
        study=str(folder),
        engine=made.engine["name"],
        model=made.model,
        space=made.space,
        objective=made.objective,
        copied=[each.copy_name for each in _copied(drafted)],
        gpus=made.gpus,
        baseline=[name for name, value in made.placed.baseline.items() if value is not None],
        fixed=[*made.placed.flags, *made.placed.env],
        secrets=list(made.placed.secrets),
        serve=dict(made.serve),
        left_out=list(made.left_out),
        added=list(made.added),
    )
