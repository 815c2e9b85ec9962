"""Faults of definition files, collected and put in order, and the words that they share."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tuner.definitions.yaml_source import Mark, Place, Source
from tuner.errors import DefinitionError, Problem
from tuner.flags.secrets import hides

_SHOWN = 60

_Entry = tuple[str, int, int, Problem]
Value = TypeVar("Value")


@dataclass(slots=True)
class Findings:
    """The faults of one load, over all its files; sources are ordered as first mentioned."""

    _found: list[_Entry] = field(default_factory=list)
    _files: list[str] = field(default_factory=list)

    def add(
        self,
        source: Source,
        place: Place,
        message: str,
        hint: str = "",
        *,
        key: bool = False,
        about: Place | None = None,
    ) -> None:
        """Note a fault at a value (at its key with `key`); `about` is whose it is, if another's."""
        line, column = source.mark(place, key=key)
        path = dotted(place if about is None else about)
        where = source.where(place, key=key)
        problem = Problem(where=where, path=path, message=message, hint=hint)
        self.mention(source.name)
        self._note((source.name, line, column, problem))

    def extend(self, name: str, problems: Iterable[Problem]) -> None:
        """Note faults of a file that already have their words."""
        self.mention(name)
        for problem in problems:
            line, column = _line_and_column(problem.where)
            self._note((name, line, column, problem))

    def _note(self, entry: _Entry) -> None:
        if entry not in self._found:
            self._found.append(entry)

    def mention(self, name: str) -> None:
        """Give a file its turn in the order of reports."""
        if name not in self._files:
            self._files.append(name)

    def has_faults(self, name: str) -> bool:
        """Whether anything was found in this file."""
        return any(name == found[0] for found in self._found)

    def settled(self, value: Value | None) -> Value:
        """The value where nothing was found.

        Raises DefinitionError with all faults otherwise, file by file, each from top to bottom.
        """
        if value is None or self._found:
            raise DefinitionError(self.problems())
        return value

    def problems(self) -> list[Problem]:
        """All faults, file by file, each from top to bottom."""
        ordered = sorted(self._found, key=lambda f: (self._files.index(f[0]), f[1], f[2]))
        return [problem for *_, problem in ordered]


def _line_and_column(where: str) -> Mark:
    match = re.search(r":(\d+):(\d+)$", where)
    return (int(match[1]), int(match[2])) if match else (1, 1)


def dotted(place: Place) -> str:
    """`hypotheses.2.change`."""
    return ".".join(str(part) for part in place)


def found(value: Any, place: Place) -> str:
    """A value in words; one that may be a secret is not shown."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict | list):
        kind = "list" if isinstance(value, list) else "mapping"
        return f"a {kind}" if value else f"an empty {kind}"
    if hides(place):
        return "a hidden value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == "":
        return "an empty text"
    if isinstance(value, str):
        return f"the text '{value if len(value) <= _SHOWN else value[:_SHOWN] + '...'}'"
    return f"the number {value}"
