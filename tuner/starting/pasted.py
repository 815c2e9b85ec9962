"""What was found in what somebody pasted, before and after its flags are understood."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

EngineName = Literal["sglang", "vllm"]
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """An image and how it is run; `options` are those of `docker run`, each one word;
    `own_entry` is whether the image's entry point comes before the words of the command; `publish`
    are the ports that others reach, on the bridge network."""

    image: str
    runtime: str = "docker"
    network: Literal["host", "bridge"] = "host"
    options: Words = ()
    own_entry: bool = True
    publish: Words = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasted:
    """A server's command as it was found: its words, its variables, its container.

    `folder` is where relative paths of it start, None inside a container. `gpus` is how many GPUs
    it was given, where that was said. Texts may refer to variables as `${NAME}`. `left_out` says
    what is in the source and not here, one sentence each; `where` is the line or the service that
    it was found at.
    """

    words: Words
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    container: Container | None = None
    folder: Path | None = None
    gpus: int | None = None
    left_out: Words = ()
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The words of a command divided: what starts the engine, and the engine's own arguments.

    `launch` is empty where an image starts the engine by itself.
    """

    engine: EngineName
    launch: Words
    arguments: Words
