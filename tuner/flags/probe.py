"""Asks an engine for its flags, in the interpreter that would launch it.

Whoever asks gives the words that run a Python (`/opt/venv/bin/python`, `docker run ... python3`):
what is asked is sent with them as text, and needs nothing but the standard library over there.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuner.flags import cache
from tuner.flags.catalogue import VARIABLES, Catalogue, Flag, How
from tuner.flags.python import Python
from tuner.flags.questions import declared, reads, stamp

STAMP_TIMEOUT_S = 60.0
PARSER_TIMEOUT_S = 240.0
SOURCE_TIMEOUT_S = 600.0


def ask(
    words: tuple[str, ...],
    env: Mapping[str, str],
    *,
    engine: str,
    distributions: tuple[str, ...],
    content: str | None = None,
) -> Catalogue | None:
    """The flags of the engine that this Python has, kept until any of its files changes; None
    where it has none or cannot be asked.

    `content` is what else it depends on, such as the digest of an image. The first time takes as
    long as the engine's import and a look through its source: up to a minute.
    """
    return _ask(words, tuple(sorted(env.items())), engine, distributions, content)


@lru_cache(maxsize=32)
def _ask(
    words: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    engine: str,
    distributions: tuple[str, ...],
    content: str | None,
) -> Catalogue | None:
    python = Python(words=words, env=dict(env))
    found = python.answer(_text(stamp), engine, *distributions, timeout_s=STAMP_TIMEOUT_S)
    if not isinstance(found, dict) or not found.get("version"):
        return None
    asked = (str(stamp_of(module)) for module in (declared, reads))
    where = (found["version"], found["folder"], found["stamp"])
    identity = (*words, engine, content or "", *where, *asked)
    catalogue = cache.kept(*identity)
    if catalogue is None:
        catalogue = _look(python, engine, found["version"])
        if catalogue is not None:
            cache.keep(catalogue, *identity)
    return catalogue


def _text(question: Any) -> str:
    return Path(question.__file__).read_text()


def stamp_of(module: Any) -> int:
    """A number that changes with what is asked."""
    return Path(module.__file__).stat().st_mtime_ns


def _look(python: Python, engine: str, version: str) -> Catalogue | None:
    how: How = "parser"
    flags = python.answer(_text(declared), engine, how, timeout_s=PARSER_TIMEOUT_S)
    if flags is None and engine == "sglang":
        how = "source"
        flags = python.answer(_text(declared), engine, how, timeout_s=SOURCE_TIMEOUT_S)
    if not flags:
        return None
    names = json.dumps(sorted({flag["dest"] for flag in flags}))
    seen = python.answer(
        _text(reads), engine, names, *VARIABLES[engine], timeout_s=SOURCE_TIMEOUT_S
    )
    return catalogue_of(engine, version, how, flags, seen or {"unread": {}, "variables": None})


def catalogue_of(
    engine: str,
    version: str,
    how: How,
    flags: Iterable[Mapping[str, Any]],
    seen: Mapping[str, Any],
) -> Catalogue:
    """The catalogue from what the questions brought.

    A flag whose action is code of the engine's own is never dead: that code may do anything.
    """
    flags = list(flags)
    unread = seen["unread"]
    return Catalogue(
        engine=engine,
        version=version,
        how=how,
        flags=[
            Flag(
                name=flag["name"],
                aliases=flag["aliases"],
                kind=flag["kind"],
                choices=flag["choices"],
                default=flag["default"],
                deprecated=flag["deprecated"],
            )
            for flag in flags
        ],
        dead={f["name"]: unread[f["dest"]] for f in flags if f["dest"] in unread and not f["acts"]},
        variables=seen["variables"],
    )
