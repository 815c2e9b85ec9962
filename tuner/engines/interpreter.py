"""Where an engine is launched from: its interpreter or command prefix, and what it has installed.

Nothing of an engine is imported to find out: that would take as long as a launch.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tuner.definitions.models import EngineDefinition, Launch
from tuner.definitions.paths import NOT_THERE, absence
from tuner.engines.base import LaunchSpec
from tuner.engines.images import Image, for_client
from tuner.engines.spelling import resolve, unset_references
from tuner.errors import EngineError
from tuner.flags.python import Python

_QUESTION = """
import importlib.metadata as m, importlib.util as u, json, sys
version = None
for name in sys.argv[2:]:
    try:
        version = m.version(name)
        break
    except m.PackageNotFoundError:
        pass
print(json.dumps([u.find_spec(sys.argv[1]) is not None, version]))
"""
_QUESTION_TIMEOUT_S = 60.0
_SHEBANG = re.compile(
    rb"#! ?(?:/\S*/env (python[\d.]*)|(?:/bin/sh\n'''exec' \"?)?(/[^\s\"]*/python[\d.]*))"
)
"""How installers write the interpreter into a script: as it is, by `env`, or where the path is too
long for the kernel, through a shell."""
_SHEBANG_BYTES = 512

IMAGE_PYTHON = "python3"
"""The interpreter of an image that names no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What an interpreter said: whether the engine's package can be found, and its version."""

    found: bool
    version: str | None


def launch_words(spec: LaunchSpec, module: str) -> tuple[str, ...]:
    """The first words of the command: an interpreter with the module, or the command prefix; those
    inside it where the launch is an image.

    Raises EngineError where the study names none, both, or an unknown build.
    """
    launch = chosen_launch(spec.engine, spec.build)
    if launch.image is not None:
        return tuple(launch.command or (IMAGE_PYTHON, "-m", module))
    if launch.command is not None:
        return tuple(in_folder(spec.folder, word, files_only=True) for word in launch.command)
    return (in_folder(spec.folder, launch.python or ""), "-m", module)


def chosen_launch(engine: EngineDefinition, build: str | None) -> Launch:
    """The launch that a build selects, or the engine's own without one.

    Raises EngineError for an unknown build and where there is not exactly one way to launch.
    """
    if build is None:
        where = "engine"
        launch = Launch(python=engine.python, command=engine.command, image=engine.image)
    elif build in engine.builds:
        where = f"engine.builds.{build}"
        launch = engine.builds[build]
    else:
        known = ", ".join(sorted(engine.builds)) or "none"
        raise EngineError(
            f"engine.builds: there is no build named {build!r}", hint=f"Builds are: {known}."
        )
    ways = [way for way in (launch.python, launch.image or launch.command) if way]
    if len(ways) != 1:
        raise EngineError(
            f"{where}: {len(ways)} ways to launch the engine were given, exactly one is needed",
            hint="Give one of python, command and image.",
        )
    return launch


def in_folder(folder: Path, word: str, *, files_only: bool = False) -> str:
    """A path of the study's folder made absolute; anything else as it is.

    Links are kept: an interpreter knows its environment by the name it is called by.
    """
    path = Path(os.path.normpath(folder.resolve() / word))
    try:
        exists = path.is_file() if files_only else path.exists()
    except OSError:  # longer than any name of a file, or in a folder that is not ours to look into
        return word
    return str(path) if word and exists else word


def python_words(
    words: tuple[str, ...], env: Mapping[str, str], image: Image | None = None
) -> tuple[str, ...] | None:
    """The words that run a python of this launch, `words` being its first; None where it has none
    or refers to variables that are not set.

    Inside an image it gets those of the variables that its client is called with (`for_client`).
    """
    python = [at for at, word in enumerate(words) if Path(word).name.startswith("python")]
    own = words[: python[-1] + 1] if python else ()
    if not python and image is None:
        own = _script_words(words)
    if unset_references([*own, *(image.options if image else ())]):
        return None
    if image is not None:
        return image.asked(tuple(map(resolve, own)) or (IMAGE_PYTHON,), env)
    return tuple(map(resolve, own)) or None


def _script_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words up to the interpreter of the script that they run, such as `vllm` or `sglang`."""
    for at, word in enumerate(words):
        match = _SHEBANG.match(_beginning(word))
        if match:
            return (*words[:at], (match[1] or match[2]).decode())
    return ()


def _beginning(word: str) -> bytes:
    """How the file begins that a shell would run for this word; nothing where it has none."""
    path = shutil.which(word)
    if path is None:
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(_SHEBANG_BYTES)
    except OSError:
        return b""


def installed(
    words: tuple[str, ...],
    env: Mapping[str, str],
    *,
    package: str,
    distributions: tuple[str, ...],
    image: Image | None = None,
    image_id: str | None = None,
) -> Installed | None:
    """What the interpreter of this launch says of the engine's package; None where it cannot be
    asked: a prefix without an interpreter, no such program, or no sensible answer."""
    known = {name: resolve(value) for name, value in env.items() if not unset_references([value])}
    asked = python_words(words, known, image)
    if asked is None or (image is not None and image_id is None):
        return None
    settings = for_client(known) if image is not None else known
    return _ask(asked, tuple(sorted(settings.items())), package, distributions, image_id)


@lru_cache(maxsize=32)
def _ask(
    words: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    package: str,
    distributions: tuple[str, ...],
    image_id: str | None,
) -> Installed | None:
    """Asked once; where it is an image, once for each content that it has had."""
    python = Python(words=words, env=dict(env))
    told = python.answer(_QUESTION, package, *distributions, timeout_s=_QUESTION_TIMEOUT_S)
    if not isinstance(told, list) or len(told) != 2:
        return None
    found, version = told
    return Installed(found=bool(found), version=None if version is None else str(version))


def program_faults(program: str) -> list[str]:
    """What keeps the first program of a launch from running here, as one sentence."""
    if unset := unset_references([program]):
        return [f"the launch needs the variable {unset[0]}, which is not set"]
    program = resolve(program)
    if shutil.which(program):
        return []
    absent = absence(Path(program))
    if absent:
        return [f"the engine's interpreter or command {program} {absent}"]
    return [f"the engine's interpreter or command {program} is not an executable file"]


def model_faults(spec: LaunchSpec) -> list[str]:
    """A sentence where the model looks like a path and nothing is there."""
    model = spec.model
    looks_like_path = model.startswith(("/", "./", "../", "~")) or model.count("/") > 1
    sibling = (spec.folder / model).parent
    inside = "/" in model and not absence(sibling) and sibling != spec.folder
    absent = absence(Path(in_folder(spec.folder, model))) if looks_like_path or inside else ""
    if absent == NOT_THERE:
        return [f"the model {model} {absent}, neither as it stands nor in {spec.folder}"]
    return [f"the model {model} {absent}"] if absent else []
