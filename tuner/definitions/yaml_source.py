"""YAML text → plain values and where each stands; the only user of PyYAML.

The values are those of YAML 1.2: only `true` and `false` are bools, `1e-3` is a number, dates and
times of day are texts. What YAML 1.1 reads otherwise (`on`, `010`, `1_000`) is refused rather than
guessed, and so are duplicate keys, tags, merge keys and whatever else a definition does not need.
"""

import codecs
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from tuner.definitions.paths import fault
from tuner.errors import DefinitionError, Problem
from tuner.flags.secrets import hides

Place = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""
Mark = tuple[int, int]
"""Line and column, both from 1."""

MAX_BYTES = 500_000
MAX_DEPTH = 30
MAX_VALUES = 50_000

_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SWITCH = re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"([-+]?)0+([0-9]+)")
_OLD_BASE = re.compile(r"[-+]?(0b_*[01][01_]{0,63}|0x_*[0-9a-fA-F][0-9a-fA-F_]{0,15})")
_OLD_DECIMAL = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document: its value, and the marks of every key and of every value by its place."""

    name: str
    value: Any
    keys: Mapping[Place, Mark]
    values: Mapping[Place, Mark]

    def mark(self, place: Place, *, key: bool = False) -> Mark:
        """Where the value (or its key) stands; of its nearest parent where it is not there."""
        marks = self.keys if key and place in self.keys else self.values
        while place not in marks and place:
            place = place[:-1]
        return marks.get(place, (1, 1))

    def where(self, place: Place, *, key: bool = False) -> str:
        """The mark as `file:line:col`."""
        line, column = self.mark(place, key=key)
        return f"{self.name}:{line}:{column}"


def read(path: Path, *, name: str | None = None, repeated: list[Problem] | None = None) -> Source:
    """The document in a file, called `name` in messages; `repeated` as in `parse`.

    Raises DefinitionError with every fault found, and where the file cannot be read.
    """
    name = name or str(path)
    return parse(_decode(_read_bytes(path, name), name), name=name, repeated=repeated)


def parse(text: str, *, name: str, repeated: list[Problem] | None = None) -> Source:
    """The document in a text. Raises DefinitionError with every fault found.

    Where `repeated` is given, keys that are there twice are noted in it and raise nothing alone:
    the first counts, so that the rest of the document can be looked at.
    """
    reader = _Reader(name=name)
    try:
        reader.check_events(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        _refuse_character(text, error, name)
    except yaml.MarkedYAMLError as error:
        raise DefinitionError([_syntax_problem(error, name)]) from None
    value = reader.construct(node, (), ()) if node is not None else None
    if reader.problems and (repeated is None or len(reader.problems) > reader.duplicates):
        raise DefinitionError(reader.problems)
    if repeated is not None:
        repeated += reader.problems
    if value is None:
        _refuse(f"{name}:1:1", "the file is empty, expected keys and values")
    return Source(name=name, value=value, keys=reader.keys, values=reader.values)


def parse_foreign(text: str, *, name: str) -> list[Any]:
    """The documents of somebody else's file, such as compose's or Kubernetes': several are
    allowed, anchors and merge keys too, and every scalar but null is the text it is written as.

    Raises DefinitionError with the first fault.
    """
    try:
        _Reader(name=name).check_depth(text)
        return list(yaml.load_all(text, Loader=_ForeignLoader))
    except yaml.reader.ReaderError as error:
        _refuse_character(text, error, name)
    except yaml.MarkedYAMLError as error:
        raise DefinitionError([_syntax_problem(error, name)]) from None


class _Loader(yaml.SafeLoader):
    """PyYAML's parser without its ideas of what a plain scalar means."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


class _ForeignLoader(yaml.SafeLoader):
    """PyYAML's parser that knows null and merge keys, and takes every other scalar as a text."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"]),
):
    _ForeignLoader.add_implicit_resolver(_tag, _pattern, _first)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Turns nodes into values, collecting marks and problems on the way."""

    name: str
    keys: dict[Place, Mark] = field(default_factory=dict)
    values: dict[Place, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    duplicates: int = 0

    def check_depth(self, text: str) -> None:
        """Refuse what nests deeper than any file that a person writes."""
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                self._stop(event, f"nested deeper than {MAX_DEPTH} levels", "")

    def check_events(self, text: str) -> None:
        """Refuse what would make composing dangerous or ambiguous, before any nesting is built."""
        documents = depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._stop(event, "a second document starts here", "keep one in each file")
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    self._stop(event, f"nested deeper than {MAX_DEPTH} levels", "")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if getattr(event, "tag", None) is not None:
                self._stop(event, "tags such as !name are not used here", "quote a text with '!'")

    def construct(self, node: yaml.Node, place: Place, above: tuple[int, ...]) -> Any:
        """The value of a node; `above` holds the nodes around it."""
        self.values[place] = _mark(node)
        if len(self.values) > MAX_VALUES:
            self._stop(node, f"more than {MAX_VALUES} values", "aliases multiply: write less")
        if id(node) in above:
            self._stop(node, "an alias refers to the collection it stands in", "", place)
        above = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, above)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.construct(item, (*place, index), above)
                for index, item in enumerate(node.value)
            ]
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place, above: tuple[int, ...]) -> Any:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, place)
            if key is None:
                continue
            if key in mapping:
                line = self.keys[(*place, key)][0]
                self._note(key_node, place, f"duplicate key '{key}', first on line {line}")
                self.duplicates += 1
                continue
            self.keys[(*place, key)] = _mark(key_node)
            mapping[key] = self.construct(value_node, (*place, key), above)
        return mapping

    def _key(self, node: Any, place: Place) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._note(node, place, "found a collection as a key, expected a text")
            return None
        if node.value == "<<" and node.style is None:
            self._note(node, place, "merge keys (<<) are not used here", "write the keys out")
            return None
        if self._unusable(node, place):
            return None
        if node.style is None and (kind := _kind_of_key(node.value)) is not None:
            self._note(
                node,
                place,
                f"found {kind} as a key, expected a text",
                f'quote it: "{node.value}"' if node.value else "",
            )
            return None
        return str(node.value)

    def _scalar(self, node: Any, place: Place) -> Any:
        text = str(node.value)
        if self._unusable(node, place):
            return None
        if node.style is not None:
            return text
        trap = _trap(text)
        if trap is None:
            return _plain(text)
        message, hint = trap
        if hides(place):
            message, hint = "found a hidden value that YAML readers differ about", "quote it"
        self._note(node, place, message, hint)
        return None

    def _unusable(self, node: Any, place: Place) -> bool:
        """Whether a text holds what neither a file's name nor a command line can; it is noted."""
        if _HALF_CHARACTER.search(node.value):
            self._note(node, place, "found half of a character, expected text", "write it whole")
            return True
        control = _CONTROL_CHARACTER.search(node.value)
        if control:
            found = f"found the control character U+{ord(control[0]):04X}, expected text"
            self._note(node, place, found, "remove it")
        return control is not None

    def _note(self, at: Any, place: Place, message: str, hint: str = "") -> None:
        line, column = _mark(at)
        path = ".".join(str(part) for part in place)
        self.problems.append(
            Problem(where=f"{self.name}:{line}:{column}", path=path, message=message, hint=hint)
        )

    def _stop(self, at: Any, message: str, hint: str, place: Place = ()) -> NoReturn:
        self._note(at, place, message, hint)
        raise DefinitionError(self.problems)


def _mark(at: Any) -> Mark:
    return at.start_mark.line + 1, at.start_mark.column + 1


def _plain(text: str) -> Any:
    """The value of an unquoted scalar in YAML 1.2."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def _trap(text: str) -> tuple[str, str] | None:
    """What is wrong with an unquoted scalar, and what to write instead; None where it is clear."""
    if _SWITCH.fullmatch(text):
        truth = "true" if text.lower() in {"yes", "on"} else "false"
        return f"found {text}, which only old YAML reads as {truth}", _either(truth, text)
    if zero := _LEADING_ZERO.fullmatch(text):
        plain = zero[1] + zero[2]
        return f"found {text}, which some YAML readers take as octal", _either(plain, text)
    if _NOT_FINITE.fullmatch(text):
        return f"found {text}, expected a finite number", ""
    if _INT.fullmatch(text) or _FLOAT.fullmatch(text):
        return _too_large(text)
    if (plain := _old_number(text)) is not None:
        return f"found {text}, which only old YAML reads as a number", _either(plain, text)
    return None


def _too_large(text: str) -> tuple[str, str] | None:
    too_long = _INT.fullmatch(text) is not None and len(text) > 18
    if too_long or (_FLOAT.fullmatch(text) and math.isinf(float(text))):
        return f"found the number {text[:12]}..., which is too large", ""
    return None


def _old_number(text: str) -> str | None:
    """The number that only YAML 1.1 sees in a text, as all write it."""
    plain = text.replace("_", "")
    if _OLD_BASE.fullmatch(text):
        return str(int(plain, 0))
    return plain if "_" in text and _OLD_DECIMAL.fullmatch(text) else None


def _either(plain: str, text: str) -> str:
    return f'write {plain}, or quote it if the text is meant: "{text}"'


def _kind_of_key(text: str) -> str | None:
    """What an unquoted key is if not a text; a whole number counts as the text it is written as."""
    if _SWITCH.fullmatch(text):
        return text
    if _INT.fullmatch(text) or isinstance(_plain(text), str):
        return None
    return "nothing" if text == "" else text


def _read_bytes(path: Path, name: str) -> bytes:
    problem = fault(path)
    if problem:
        _refuse(name, problem)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        _refuse(name, f"cannot be read: {error.strerror}")
    if len(data) > MAX_BYTES:
        _refuse(name, f"larger than {MAX_BYTES} bytes, expected a file written by a person")
    return data


def _decode(data: bytes, name: str) -> str:
    for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        if data.startswith(mark):
            _refuse(f"{name}:1:1", "found UTF-16 text, expected UTF-8", "save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        byte = data[error.start]
        _refuse(
            f"{name}:{line}:{column}",
            f"found the byte 0x{byte:02x}, expected UTF-8 text",
            "save it as UTF-8",
        )


def _refuse(where: str, message: str, hint: str = "") -> NoReturn:
    raise DefinitionError([Problem(where=where, path="", message=message, hint=hint)]) from None


def _refuse_character(text: str, error: yaml.reader.ReaderError, name: str) -> NoReturn:
    before = text[: error.position]
    line = before.count("\n") + 1
    column = len(before.rpartition("\n")[2]) + 1
    code = error.character if isinstance(error.character, int) else ord(str(error.character))
    _refuse(f"{name}:{line}:{column}", f"found the control character U+{code:04X}", "remove it")


def _syntax_problem(error: yaml.MarkedYAMLError, name: str) -> Problem:
    problem = str(error.problem)
    opened = error.context_mark
    mark = opened if "expected ':'" in problem else error.problem_mark or opened
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    for pattern, message, hint in _SYNTAX:
        if pattern in problem or pattern in str(error.context):
            start = f" opened on line {opened.line + 1}" if opened and "{opened}" in message else ""
            return Problem(
                where=f"{name}:{line}:{column}",
                path="",
                message=message.replace("{opened}", start),
                hint=hint,
            )
    return Problem(where=f"{name}:{line}:{column}", path="", message=f"not YAML: {problem}")


_SYNTAX = (
    (r"'\t' that cannot start", "found a tab, expected spaces", "indent with spaces"),
    (
        "mapping values are not allowed",
        "found ':' where no key can stand",
        "check the indent; quote a text with ': '",
    ),
    ("while parsing a flow sequence", "the list{opened} is not closed with ']'", ""),
    ("while parsing a flow mapping", "the mapping{opened} is not closed with '}'", ""),
    ("while scanning a quoted scalar", "the quote{opened} is not closed", ""),
    ("found undefined alias", "found an alias (*name) without its anchor", "quote a text with '*'"),
    ("found duplicate anchor", "found an anchor (&name) for the second time", ""),
    ("could not find expected ':'", "found a key without ':'", "write KEY: VALUE, with a space"),
    ("that cannot start any token", "found a character that cannot start a text", "quote the text"),
    ("found unknown escape", "found an unknown escape in a quoted text", "write \\\\ for \\"),
    ("while parsing a block mapping", "found something that is not KEY: VALUE", "check the indent"),
    (
        "while parsing a block collection",
        "found something that is not '- ITEM'",
        "check the indent",
    ),
)
