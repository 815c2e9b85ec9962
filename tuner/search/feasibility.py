"""Which settings crash the server: suspects after a crash, cleared by a launch that served. Pure.

A crash makes every setting of its configuration, and every pair of them, a suspect; a launch that
served clears all of its own. Of what is left, singles are likelier causes than pairs; what the
failure itself names and what explains further crashes is likelier still. A number is suspected as
this value, as this value or more, and as this value or less, so that memory which ran out at 0.95
is not tried at 0.97.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from tuner.definitions.domain import is_number
from tuner.definitions.models import Value

PAIR_WEIGHT = 0.1
"""How much likelier a single setting is to be the cause than one given pair."""
REPEAT_FACTOR = 10.0
"""How much likelier a suspect becomes with each further crash that it explains."""
NAMED_FACTOR = 10.0
"""How much likelier a suspect is where the crash itself names all of its parameters."""
MAX_REPEATS = 60
"""Where the factor above stops growing, far short of overflow."""
REPORTED_PROBABILITY = 0.2

Relation = Literal["=", ">=", "<="]


class Setting(NamedTuple):
    """One parameter at a value (as JSON text: true is not 1), or from or up to a number."""

    name: str
    relation: Relation
    value: str | float

    def __str__(self) -> str:
        value = json.loads(self.value) if isinstance(self.value, str) else self.value
        return f"{self.name}{self.relation}{value if isinstance(value, str) else json.dumps(value)}"


Settings = tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Settings that were in some crashes and never in a launch that served.

    `probability` is the share of suspicion it carries in the crash that it explains best.
    """

    settings: Settings
    crashes: int
    crashes_total: int
    probability: float

    def __str__(self) -> str:
        named = " with ".join(str(setting) for setting in self.settings)
        return f"{named} in {self.crashes} of {self.crashes_total} crashes, never survived"


@dataclass(slots=True)
class _Crash:
    """What one crash can still be blamed on; `named` are the parameters that its log names."""

    values: Mapping[str, Value]
    named: frozenset[str]
    suspects: set[Settings]
    weight: float = 0.0
    """Of all its suspects together."""


class Feasibility:
    """Learns from launches, in any order, which configurations crash."""

    def __init__(self) -> None:
        self._survivors: list[Mapping[str, Value]] = []
        self._crashes: list[_Crash] = []
        self._weights: dict[Settings, float] = {}

    def survived(self, values: Mapping[str, Value]) -> None:
        """The server served with these values: nothing about them is at fault."""
        self._survivors.append(values)
        for suspect in _held(self._weights, values):
            del self._weights[suspect]
        self._weigh()

    def mistaken(self, values: Mapping[str, Value]) -> None:
        """The server did not serve with these values after all: its output was wrong."""
        if values in self._survivors:
            self._survivors.remove(values)

    def crashed(self, values: Mapping[str, Value], named: Iterable[str] = ()) -> None:
        """The server crashed, and these values are to blame: the `named` ones most of all."""
        innocent: set[Settings] = set()
        fresh = [s for s in _suspects_of(values) if s not in self._weights]
        for survivor in self._survivors:
            innocent |= _held(fresh, survivor)
        fresh = [s for s in fresh if s not in innocent]
        self._weights.update(dict.fromkeys(fresh, 0.0))
        for earlier in self._crashes:
            earlier.suspects |= _held(fresh, earlier.values)
        self._crashes.append(_Crash(values, frozenset(named), _held(self._weights, values)))
        self._weigh()

    def p_crash(self, values: Mapping[str, Value]) -> float:
        """How likely these values crash, 0 to 1, by the crash that speaks most against them."""
        held = _held(self._weights, values)
        return max((self._guilt(crash, held) for crash in self._crashes), default=0.0)

    def suspects(self) -> list[Suspect]:
        """The likely causes for people to read, likeliest first, each said once."""
        found = (self._suspect(settings) for settings in self._weights)
        likely = [suspect for suspect in found if suspect.probability >= REPORTED_PROBABILITY]
        return _plainest(sorted(likely, key=_rank))

    def _guilt(self, crash: _Crash, held: set[Settings]) -> float:
        if not crash.weight:
            return 0.0
        return self._weight(crash, crash.suspects & held) / crash.weight

    def _weight(self, crash: _Crash, suspects: Iterable[Settings]) -> float:
        return math.fsum(
            self._weights[s] * (NAMED_FACTOR if crash.named.issuperset(_names(s)) else 1.0)
            for s in suspects
        )

    def _suspect(self, settings: Settings) -> Suspect:
        explained = [crash for crash in self._crashes if settings in crash.suspects]
        return Suspect(
            settings=settings,
            crashes=len(explained),
            crashes_total=len(self._crashes),
            probability=max(self._guilt(crash, {settings}) for crash in explained),
        )

    def _weigh(self) -> None:
        counts = dict.fromkeys(self._weights, 0)
        for crash in self._crashes:
            crash.suspects &= counts.keys()
            for suspect in crash.suspects:
                counts[suspect] += 1
        for suspect, count in counts.items():
            prior = 1.0 if len(suspect) == 1 else PAIR_WEIGHT
            self._weights[suspect] = prior * REPEAT_FACTOR ** min(count - 1, MAX_REPEATS)
        for crash in self._crashes:
            crash.weight = self._weight(crash, crash.suspects)


def _held(suspects: Iterable[Settings], values: Mapping[str, Value]) -> set[Settings]:
    """Those of the suspects that these values fall under."""
    known: dict[Setting, bool] = {}
    held = set()
    for suspect in suspects:
        for setting in suspect:
            if setting not in known:
                known[setting] = _holds(setting, values)
            if not known[setting]:
                break
        else:
            held.add(suspect)
    return held


def _holds(setting: Setting, values: Mapping[str, Value]) -> bool:
    if setting.name not in values:
        return False
    value = values[setting.name]
    if isinstance(setting.value, str):
        return json.dumps(value) == setting.value
    if not is_number(value):
        return False
    return value >= setting.value if setting.relation == ">=" else value <= setting.value


def _names(suspect: Settings) -> set[str]:
    return {setting.name for setting in suspect}


def _rank(suspect: Suspect) -> tuple[float, int, int, bool, Settings]:
    exact = all(setting.relation == "=" for setting in suspect.settings)
    return (
        -round(suspect.probability, 6),
        -suspect.crashes,
        len(suspect.settings),
        not exact,
        suspect.settings,
    )


def _settings_of(name: str, value: Value) -> Iterator[Setting]:
    yield Setting(name, "=", json.dumps(value))
    if is_number(value):
        yield Setting(name, ">=", value)
        yield Setting(name, "<=", value)


def _suspects_of(values: Mapping[str, Value]) -> Iterator[Settings]:
    singles = [setting for name, value in values.items() for setting in _settings_of(name, value)]
    yield from ((setting,) for setting in singles)
    yield from (pair for pair in combinations(singles, 2) if pair[0].name != pair[1].name)


def _plainest(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Without those that only say again what a likelier one has said of the same parameters."""
    kept: list[Suspect] = []
    for suspect in suspects:
        names = _names(suspect.settings)
        said = (
            _names(other.settings) <= names and other.crashes >= suspect.crashes for other in kept
        )
        if not any(said):
            kept.append(suspect)
    return kept
