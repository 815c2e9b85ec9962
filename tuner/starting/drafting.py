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
    Fixed,
    Hardware,
    SpaceDefinition,
    StudyDefinition,
)
from tuner.definitions.paths import absence
from tuner.definitions.validation import has_versions, load
from tuner.definitions.versions import alike, is_version
from tuner.engines.base import LaunchSpec
from tuner.errors import TunerError
from tuner.night.opening import installed_version
from tuner.starting import arguments
from tuner.starting.arguments import Arguments, Text
from tuner.starting.entries import entry_of, repository
from tuner.starting.library import Definition, named, objective_for, space_for
from tuner.starting.pasted import EngineName, Entry, Pasted
from tuner.starting.placing import place, placeholder_free, typed
from tuner.starting.vocabulary import MODULES
from tuner.starting.writing import HOURS, Draft

_TAG = re.compile(r"v?(\d+\.\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?)(?![\d.])")
_DEVICES = re.compile(r"[\w-]+(,[\w-]+)*")
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
    flags = {name: _local_value(pasted, text) for name, text in read.flags.items()}
    space, objective = _definitions(entry.engine, folder, pasted, asked)
    bare, notes = _bare(entry, read, flags, folder, pasted, asked.version)
    definition = load(space.path, SpaceDefinition)
    version = bare.engine.version or _installed(bare, folder, pasted.env)
    _refuse_unknown(version, definition, space, pasted)
    placed = place(flags, pasted.env, definition, bare, version)
    return Drafted(
        draft=Draft(
            origin=origin,
            engine=_ordered(bare.engine),
            model=bare.model,
            placed=placed,
            serve=_serve(read, pasted),
            space=space.reference(folder),
            objective=objective.reference(folder),
            gpus=bare.hardware.gpus,
            left_out=(
                *read.notes,
                *notes,
                *_told_otherwise(bare, folder, pasted, asked.version),
                *pasted.left_out,
            ),
            added=tuple(placed.added),
        ),
        space=space,
        objective=objective,
    )


def _serve(read: Arguments, pasted: Pasted) -> dict[str, Any]:
    """Where it listens, as a study says it."""
    publish = list(pasted.container.publish) if pasted.container else []
    said = {**read.serve, "publish": publish}
    return {key: said[key] for key in ("host", "port", "publish") if said.get(key)}


def _ordered(engine: EngineDefinition) -> dict[str, Any]:
    said = engine.model_dump(exclude_unset=True)
    order = ("name", "version", "python", "image", "command", "containers")
    return {key: said[key] for key in order if key in said}


def _definitions(
    engine: EngineName, folder: Path, pasted: Pasted, asked: Asked
) -> tuple[Definition, Definition]:
    cpu = _on_cpu(pasted)
    return (
        named(asked.space) if asked.space else space_for(engine, folder, cpu=cpu),
        named(asked.objective) if asked.objective else objective_for(engine, folder, cpu=cpu),
    )


def _bare(
    entry: Entry,
    read: Arguments,
    flags: Mapping[str, Text],
    folder: Path,
    pasted: Pasted,
    version: str | None,
) -> tuple[StudyDefinition, list[str]]:
    """A study of this engine, model and host that says nothing of flags yet, and what is worth
    saying of its GPUs."""
    stated = version or _tagged(pasted)
    launch = {"name": entry.engine, **({"version": stated} if stated else {})}
    engine = EngineDefinition(**(launch | dict(_launch(entry, pasted))))
    model = _local(pasted, placeholder_free("the model", read.model or ""))
    gpus, notes = _gpus(engine, model, folder, flags, pasted)
    return (
        StudyDefinition(
            engine=engine,
            model=model,
            space="",
            objective="",
            hardware=Hardware(gpus=gpus),
            budget=_BUDGET,
        ),
        notes,
    )


_BUDGET = Budget(hours=HOURS)


def _entry(pasted: Pasted) -> Entry:
    container = pasted.container
    entry = entry_of(pasted.words, container.image if container and container.own_entry else "")
    if entry is None:
        raise TunerError("the command starts no engine that is known")
    return entry


def _launch(entry: Entry, pasted: Pasted) -> Iterator[tuple[str, Any]]:
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
    path = pasted.folder / text
    return str(path.absolute()) if text and not absence(path) else text


def _local_value(pasted: Pasted, text: Text) -> Text:
    return _local(pasted, text) if isinstance(text, str) and "/" in text else text


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


def _installed(study: StudyDefinition, folder: Path, env: Mapping[str, str]) -> str | None:
    """The version that the interpreter says it has; nobody asks an image, which may be far."""
    if study.engine.image is not None:
        return None
    return installed_version(folder, study.model_copy(update={"fixed": Fixed(env=dict(env))}))


def _told_otherwise(
    study: StudyDefinition, folder: Path, pasted: Pasted, asked: str | None
) -> Iterator[str]:
    """That the engine tells another version than the one that was asked for."""
    if asked is None:
        return
    told = _tagged(pasted) or _installed(study, folder, pasted.env)
    if told is not None and is_version(told) and not alike(asked, told):
        who = f"the tag of {pasted.container.image}" if pasted.container else "what is installed"
        yield f"version {told}, which {who} says: --engine-version {asked} was taken instead"


def _refuse_unknown(
    version: str | None, definition: SpaceDefinition, space: Definition, pasted: Pasted
) -> None:
    if version or not has_versions(definition):
        return
    what = f"image {pasted.container.image}" if pasted.container else f"'{pasted.words[0]}' here"
    raise TunerError(
        f"{what} does not say which version it has, and {space.path.name} differs by version",
        hint="Say it: --engine-version, such as --engine-version 0.5.9",
    )


def _gpus(
    engine: EngineDefinition,
    model: str,
    folder: Path,
    flags: Mapping[str, Text],
    pasted: Pasted,
) -> tuple[int, list[str]]:
    """How many GPUs the study has: as many as the server was given, at least those it needs."""
    said = {name: typed(text) for name, text in flags.items()}
    spec = LaunchSpec(engine=engine, model=model, folder=folder, flags=said)
    needed = engines.create(spec).gpus_needed()
    visible = pasted.env.get("CUDA_VISIBLE_DEVICES", "")
    given = len(visible.split(",")) if _DEVICES.fullmatch(visible) else pasted.gpus
    if given is not None and given < needed:
        return needed, [f"{given} GPUs were given, and the command needs {needed}"]
    return given or needed, []
