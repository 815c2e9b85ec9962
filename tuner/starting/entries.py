"""Which words of a command start an engine, and which are the engine's own arguments. Pure."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from tuner.errors import TunerError
from tuner.starting.pasted import Entry, Words
from tuner.starting.vocabulary import (
    IMAGES_THAT_SERVE,
    MODULES,
    OTHER_MODULES,
    OTHERS,
    PROGRAMS,
    SCRIPTS,
)

KNOWN = "vllm serve, sglang serve, python -m sglang.launch_server, " + (
    "python -m vllm.entrypoints.openai.api_server"
)
_CLI = "vllm.entrypoints.cli.main"
SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_BEFORE_A_PROGRAM = 6
"""Among so many first words another server's program is looked for."""


def entry_of(words: Sequence[str], image: str = "") -> Entry | None:
    """The engine that these words start, in this image if any; None where they start no server.

    Raises TunerError for a server that cannot be tuned.
    """
    found = next(_entries(tuple(words)), None)
    if found is not None:
        return found
    _refuse_others(words)
    if image and serves_by_itself(image) and (not words or not _names_a_program(words[0])):
        return Entry(engine="vllm", launch=(), arguments=tuple(words))
    return None


def serves_by_itself(image: str) -> bool:
    """Whether the entry point of an image is an engine, so that arguments follow at once."""
    return IMAGES_THAT_SERVE.search(repository(image)) is not None


def repository(image: str) -> str:
    """An image without its tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def _entries(words: Words) -> Iterator[Entry]:
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        program = PurePosixPath(word).name
        if word == "-m" and after in MODULES:
            yield _divided(MODULES[after], words, at + 2)
        elif word == "-m" and after == _CLI and words[at + 2 : at + 3] == ("serve",):
            yield _divided("vllm", words, at + 3)
        elif program in PROGRAMS and after == "serve":
            yield _divided(PROGRAMS[program], words, at + 2)
        elif at and _PYTHON.fullmatch(PurePosixPath(words[at - 1]).name):
            for script, engine in SCRIPTS.items():
                if f"/{word}".endswith(f"/{script}"):
                    yield _divided(engine, words, at + 1)


def _divided(engine: str, words: Words, at: int) -> Entry:
    if engine == "vllm":
        return Entry(engine="vllm", launch=words[:at], arguments=words[at:])
    return Entry(engine="sglang", launch=words[:at], arguments=words[at:])


def _refuse_others(words: Sequence[str]) -> None:
    modules = [after for word, after in pairwise(words) if word == "-m"]
    other = next((OTHER_MODULES[name] for name in modules if name in OTHER_MODULES), None)
    programs = [PurePosixPath(word).name for word in words[:_BEFORE_A_PROGRAM]]
    other = other or next((OTHERS[name] for name in programs if name in OTHERS), None)
    if other:
        raise TunerError(
            f"the command starts {other}, which cannot be tuned here",
            hint="Engines are SGLang and vLLM.",
        )


def _names_a_program(word: str) -> bool:
    name = PurePosixPath(word).name
    return name in SHELLS or _PYTHON.fullmatch(name) is not None
