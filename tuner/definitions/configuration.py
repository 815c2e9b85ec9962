"""A configuration in canonical form, its key, and what the engine is told of it. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.definitions.models import Value


@dataclass(frozen=True, slots=True, eq=False)
class Configuration:
    """Values of the active parameters, in the order in which the space declares them.

    Two are equal where their keys are: unlike in Python, true is then not 1.
    """

    values: tuple[tuple[str, Value], ...]
    dead: frozenset[str] = frozenset()
    """Parameters whose flag is read by nothing: whatever their value, it is one configuration."""

    @property
    def key(self) -> str:
        """12 hex digits, the same in every process and for every order of declaration."""
        return canonical_key({name: v for name, v in self.values if name not in self.dead})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def as_dict(self) -> dict[str, Value]:
        """The values by parameter name."""
        return dict(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A configuration in the engine's terms: flags by name without dashes, variables, a build.

    `bool_styles` says for each flag that is a bool how it is spelt.
    """

    flags: dict[str, Value] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    build: str | None = None
    bool_styles: dict[str, str] = field(default_factory=dict)


def canonical_key(values: Mapping[str, Value]) -> str:
    """12 hex digits that depend on names and typed values alone, never on their order."""
    text = json.dumps(dict(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
