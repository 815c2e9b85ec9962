"""An engine's arguments as people write them → the model and the flags, each once. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tuner.errors import TunerError
from tuner.flags.names import canonical
from tuner.starting.pasted import EngineName
from tuner.starting.shell import PLACEHOLDER
from tuner.starting.vocabulary import LIST_FLAGS, MODEL_FLAGS, stands_alone, whole_name

SERVED = frozenset({"host", "port"})
"""Flags that say where a server listens: exports have them, launches get others."""

_NUMBER = re.compile(r"-\.?\d.*")
_PORT = re.compile(r"[1-9]\d{0,4}")
_HOST = re.compile(r"[\w.:%-]+")
LAST_PORT = 65535
_SHORT_LEVEL = re.compile(r"-O(\d)")
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"

Text = str | bool
"""A flag's value as it is written; true for a flag that stands alone."""


@dataclass(slots=True, kw_only=True)
class Arguments:
    """The model, and each flag by its one name with its words as one text; `serve` says where the
    server listens."""

    engine: EngineName
    model: str | None = None
    flags: dict[str, Text] = field(default_factory=dict)
    serve: dict[str, str | int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read(engine: EngineName, words: Sequence[str]) -> Arguments:
    """The arguments of an engine.

    Raises TunerError for what cannot be told, and for a server over several hosts.
    """
    arguments = Arguments(engine=engine)
    for name, dashes, values in _groups(engine, words):
        if name is None:
            _take_model(arguments, values)
        else:
            _take(arguments, name, dashes, values)
    _refuse(arguments)
    return arguments


Group = tuple[str | None, int, list[str]]


def _groups(engine: EngineName, words: Sequence[str]) -> Iterator[Group]:
    """Each flag with the words that belong to it; None for words that belong to none."""
    name: str | None = None
    dashes, values = 0, list[str]()
    for word in words:
        if word[:1] in _DASHES and word:
            raise TunerError(
                f"found '{word}', which begins with a typographic dash", hint="Write -- instead."
            )
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            if name is not None or values:
                yield name, dashes, values
            name, dashes, values = _flag(word)
            if values or stands_alone(engine, whole_name(engine, name, dashes)):
                yield name, dashes, values
                name, values = None, []
        else:
            values.append(word)
    if name is not None or values:
        yield name, dashes, values


def _flag(word: str) -> tuple[str, int, list[str]]:
    level = _SHORT_LEVEL.fullmatch(word)
    if level:
        return "O", 1, [level[1]]
    name, equals, value = word.partition("=")
    bare = name.lstrip("-")
    return canonical(bare), len(name) - len(bare), [value] if equals else []


def _take_model(arguments: Arguments, values: list[str]) -> None:
    if arguments.engine == "vllm" and arguments.model is None and len(values) == 1:
        arguments.model = values[0]
        return
    raise TunerError(
        f"cannot tell what '{values[-1]}' belongs to", hint="Write it as --FLAG=VALUE."
    )


def _take(arguments: Arguments, written: str, dashes: int, values: list[str]) -> None:
    name = whole_name(arguments.engine, written, dashes)
    if len(values) > 1 and name not in LIST_FLAGS[arguments.engine]:
        if arguments.engine == "vllm" and arguments.model is None and len(values) == 2:
            _take_model(arguments, values[1:])
            values = values[:1]
        else:
            raise TunerError(
                f"cannot tell what '{values[1]}' belongs to: --{name} takes one value",
                hint="Write it as --FLAG=VALUE.",
            )
    text = _joined(name, values, several=name in LIST_FLAGS[arguments.engine])
    if name == MODEL_FLAGS[arguments.engine]:
        arguments.model = str(text)
    elif name in SERVED:
        _take_served(arguments, name, "" if text is True else str(text))
    else:
        if name in arguments.flags:
            arguments.notes.append(f"--{name} is said twice: the last one counts")
        arguments.flags.pop(name, None)
        arguments.flags[name] = text


def _take_served(arguments: Arguments, name: str, text: str) -> None:
    known = _PORT.fullmatch(text) if name == "port" else _HOST.fullmatch(text)
    if name in arguments.serve:
        arguments.notes.append(f"--{name} is said twice: the last one counts")
    arguments.serve.pop(name, None)
    if known and (name == "host" or int(text) <= LAST_PORT):
        arguments.serve[name] = int(text) if name == "port" else text
    else:
        shown = f"--{name} {text.replace(PLACEHOLDER, '')}".rstrip()
        arguments.notes.append(f"{shown} is not known here: write it as serve.{name}")


def _joined(name: str, values: list[str], *, several: bool) -> Text:
    if not values:
        return True
    if several:
        return " ".join(_one_word(name, value) for value in values)
    return values[0]


def _one_word(name: str, value: str) -> str:
    """A value among several: the words of the flag are told apart by blanks."""
    if not re.search(r"\s", value):
        return value
    try:
        return json.dumps(json.loads(value), separators=(",", ":"))
    except ValueError:
        raise TunerError(
            f"--{name}: cannot keep '{value}', which has a blank, among several values"
        ) from None


def _refuse(arguments: Arguments) -> None:
    hosts = str(arguments.flags.get("nnodes", "1"))
    if hosts != "1":
        raise TunerError(
            f"--nnodes {hosts} spreads one server over several hosts, which cannot be tuned yet",
            hint="Start from a server that fits one host.",
        )
    role = str(arguments.flags.get("disaggregation-mode", "null"))
    if role != "null":
        raise TunerError(
            f"--disaggregation-mode {role} is one half of two servers, which cannot be tuned yet",
            hint="Start from a server that answers alone.",
        )
    if arguments.model is None:
        raise TunerError(
            f"the command names no model, expected --{MODEL_FLAGS[arguments.engine]} MODEL"
        )
