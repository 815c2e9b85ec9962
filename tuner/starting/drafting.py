"""From a server as it was found to the study that starts from it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import engines
from tuner.definitions.models import (
    Budget,
    EngineDefinition,
    SpaceDefinition,
    StudyDefinition,
    Value,
)
from tuner.definitions.validation import load
from tuner.engines.base import LaunchSpec
from tuner.errors import TunerError
from tuner.starting import arguments
from tuner.starting.entries import entry_of, repository
from tuner.starting.library import Definition, named, objective_for, space_for
from tuner.starting.pasted import EngineName, Entry, Pasted
from tuner.starting.placing import Placed, place, placeholder_free
from tuner.starting.vocabulary import MODULES
from tuner.starting.writing import HOURS, Draft

_TAG = re.compile(r"v?(\d+\.\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?)(?![\d.])")
_CPU_IMAGE = re.compile(r"cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person says beside the launch: the engine's version, a space, an objective."""

    version: str | None = None
    space: Path | None = None
    objective: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """The study, and the files that it refers to."""

    draft: Draft
    space: Definition
    objective: Definition


def draft(pasted: Pasted, folder: Path, origin: str, asked: Asked) -> Drafted:
    """The study in `folder` whose baseline is this server.

    Raises TunerError where a part of the launch cannot be read or has no place in a study,
    DefinitionError for a wrong space.
    """
    entry = _entry(pasted)
    read = arguments.read(entry.engine, entry.arguments)
    model = _local(pasted, placeholder_free("the model", read.model or ""))
    flags = {
        name: _local(pasted, text) if isinstance(text, str) and "/" in text else text
        for name, text in read.flags.items()
    }
    cpu = _on_cpu(pasted)
    space = named(asked.space) if asked.space else space_for(entry.engine, folder, cpu=cpu)
    objective = (
        named(asked.objective) if asked.objective else objective_for(entry.engine, folder, cpu=cpu)
    )
    stated = asked.version or _tagged(pasted)
    launch: dict[str, Any] = {"name": entry.engine, **({"version": stated} if stated else {})}
    launch |= dict(_engine(entry, pasted))
    definition = load(space.path, SpaceDefinition)
    version = stated or _installed(launch, model, folder, pasted.env)
    _refuse_unknown(version, definition, space, entry.engine, pasted)
    study = StudyDefinition(
        engine=EngineDefinition(**launch), model=model, space="", objective="", budget=_BUDGET
    )
    placed = place(flags, pasted.env, definition, study, version)
    gpus, notes = _gpus(launch, model, folder, placed, pasted)
    return Drafted(
        draft=Draft(
            origin=origin,
            engine=launch,
            model=model,
            placed=placed,
            space=space.reference(folder),
            objective=objective.reference(folder),
            gpus=gpus,
            left_out=(*read.notes, *notes, *pasted.left_out),
            added=tuple(placed.added),
        ),
        space=space,
        objective=objective,
    )


_BUDGET = Budget(hours=HOURS)


def _entry(pasted: Pasted) -> Entry:
    container = pasted.container
    entry = entry_of(pasted.words, container.image if container and container.own_entry else "")
    if entry is None:
        raise TunerError("the command starts no engine that is known")
    return entry


def _engine(entry: Entry, pasted: Pasted) -> Iterator[tuple[str, Any]]:
    """How it is launched, as a study says it."""
    words = list(entry.launch)
    container = pasted.container
    if container is None:
        words = [_local(pasted, word) if "/" in word else word for word in words]
        if len(words) == 3 and words[1] == "-m" and MODULES.get(words[2]) == entry.engine:
            yield "python", words[0]
        else:
            yield "command", words
        return
    yield "image", placeholder_free("the image", container.image)
    if words:
        yield "command", words
    settings: dict[str, Any] = {}
    if container.runtime != "docker":
        settings["runtime"] = container.runtime
    if container.network != "host":
        settings["network"] = container.network
    if container.options:
        settings["options"] = list(container.options)
    if settings:
        yield "containers", settings


def _local(pasted: Pasted, text: str) -> str:
    """A path that starts where the command was run, made absolute where something is there."""
    if pasted.folder is None or text.startswith(("/", "$")):
        return text
    try:
        there = (pasted.folder / text).exists()
    except OSError:  # longer than any name of a file
        return text
    return str((pasted.folder / text).absolute()) if text and there else text


def _on_cpu(pasted: Pasted) -> bool:
    image = repository(pasted.container.image) if pasted.container else ""
    variables = any(name.startswith("VLLM_CPU_") for name in pasted.env)
    return variables or _CPU_IMAGE.search(image) is not None


def _tagged(pasted: Pasted) -> str | None:
    """The version that the tag of an image says."""
    if pasted.container is None:
        return None
    name = pasted.container.image.partition("@")[0].rpartition("/")[2]
    match = _TAG.match(name.partition(":")[2])
    return match[1] if match else None


def _installed(
    launch: Mapping[str, Any], model: str, folder: Path, env: Mapping[str, str]
) -> str | None:
    """The version that the interpreter says it has; nobody asks an image, which may be far."""
    if "image" in launch:
        return None
    version = engines.version(_spec(launch, model, folder, {}, env))
    return version.split()[0] if version else None


def _spec(
    launch: Mapping[str, Any],
    model: str,
    folder: Path,
    flags: Mapping[str, Value],
    env: Mapping[str, str],
) -> LaunchSpec:
    return LaunchSpec(
        engine=EngineDefinition(**launch),
        model=model,
        folder=folder,
        flags=dict(flags),
        env=dict(env),
    )


def _refuse_unknown(
    version: str | None,
    definition: SpaceDefinition,
    space: Definition,
    engine: EngineName,
    pasted: Pasted,
) -> None:
    if version or all(p.versions is None for p in definition.parameters.values()):
        return
    what = f"image {pasted.container.image}" if pasted.container else f"'{pasted.words[0]}' here"
    raise TunerError(
        f"{what} does not say which {engine} it has, and {space.path.name} depends on its version",
        hint="Say it: --engine-version, such as --engine-version 0.5.9",
    )


def _gpus(
    launch: Mapping[str, Any], model: str, folder: Path, placed: Placed, pasted: Pasted
) -> tuple[int, list[str]]:
    """How many GPUs the study has: as many as the server was given, at least those it needs."""
    searched = {name: value for name, value in placed.launch_flags.items() if value is not None}
    needed = engines.create(_spec(launch, model, folder, searched, {})).gpus_needed()
    visible = placed.env.get("CUDA_VISIBLE_DEVICES", "")
    given = len(visible.split(",")) if re.fullmatch(r"[\w-]+(,[\w-]+)*", visible) else None
    given = given or pasted.gpus
    if given is not None and given < needed:
        return needed, [f"{given} GPUs were given, and the command needs {needed}"]
    return given or needed, []
