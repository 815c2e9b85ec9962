"""The search space: parameters, what excludes what, and configurations in canonical form. Pure.

In canonical form a parameter whose `when` does not hold is absent, every other has a value (its
default where nothing was said), and every value has one spelling. Two configurations that would be
launched alike therefore have the same key. What is not in the engine's version is not there at all:
conditions see it as null.
"""

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from functools import cached_property
from types import MappingProxyType
from typing import Self

from tuner.definitions.conditions import holds, parameters_of
from tuner.definitions.configuration import Configuration as Configuration
from tuner.definitions.configuration import Settings as Settings
from tuner.definitions.configuration import canonical_key as canonical_key
from tuner.definitions.cycles import find_cycle
from tuner.definitions.domain import NotInDomain, adjacent, canonical, grid, same, show
from tuner.definitions.models import (
    BoolParameter,
    Forbid,
    Hypothesis,
    Parameter,
    Require,
    SpaceDefinition,
    Value,
)
from tuner.definitions.narrowing import Narrowed, Scope, narrow, without
from tuner.definitions.nearest import did_you_mean
from tuner.errors import SpaceError
from tuner.flags.names import canonical as canonical_flag
from tuner.flags.secrets import HIDDEN, is_secret_flag, is_secret_variable

MAX_COUNT = 100_000
"""Spaces with more combinations than this are not counted."""
FIRST_LOOK = 10_000
"""Combinations that are looked at to see whether there is anything to search."""


def flag_of(name: str, parameter: Parameter) -> str | None:
    """The flag that a parameter sets, in its one spelling; None where it sets something else."""
    if parameter.env is not None or parameter.build:
        return None
    return canonical_flag(parameter.flag or name)


def shown(name: str, parameter: Parameter, value: Value) -> Value:
    """A value as it may be shown: a secret is hidden."""
    if not isinstance(value, str):
        return value
    if parameter.env is not None:
        return HIDDEN if is_secret_variable(parameter.env, value) else value
    return HIDDEN if is_secret_flag(flag_of(name, parameter) or "", value) else value


class Space:
    """What may be launched, by the engine's version and by what the study fixes (`pins`, by
    parameter) or leaves to the engine (`unsaid`) and which builds it has; None admits all.

    Raises SpaceError where a `when` depends on itself.
    """

    def __init__(
        self,
        definition: SpaceDefinition,
        *,
        version: str | None = None,
        pins: Mapping[str, Value] = MappingProxyType({}),
        unsaid: Collection[str] = (),
        builds: Collection[str] | None = None,
    ) -> None:
        self.definition = definition
        self.version = version
        self.unsaid = frozenset(unsaid)
        """Parameters that the study's baseline leaves to the engine."""
        self.dead: Mapping[str, Value] = {}
        """Parameters whose flag is read by nothing, each with its value in the baseline."""
        scope = Scope(version=version, pins=pins, unsaid=self.unsaid, builds=builds)
        self._keep(narrow(definition, scope))
        cycle = find_cycle(self._reads)
        if cycle is not None:
            raise SpaceError(f"'when' depends on itself: {' -> '.join(cycle)}")

    def leaving_out(self, reasons: Mapping[str, str]) -> Self:
        """The same without these hypotheses and all that builds on them, each for its reason."""
        other = copy(self)
        other._keep(without(self._narrowed, self.hypotheses, reasons))
        return other

    def ignoring(self, flags: Collection[str], baseline: Configuration) -> Self:
        """The same where these flags are read by nothing: what differs only in them is one
        configuration, and they stand where the baseline has them unless something else is said."""
        other = copy(self)
        for computed in ("_grids", "_size"):
            other.__dict__.pop(computed, None)
        stand = baseline.as_dict()
        other.dead = {
            name: stand.get(name, parameter.default)
            for name, parameter in self.parameters.items()
            if flag_of(name, parameter) in flags
        }
        return other

    def is_idle(self, hypothesis: Hypothesis) -> bool:
        """Whether the hypothesis changes only what is read by nothing."""
        return hypothesis.change.keys() <= self.dead.keys()

    def _keep(self, narrowed: Narrowed) -> None:
        self._narrowed = narrowed
        self.parameters = narrowed.parameters
        self.forbid = narrowed.forbid
        self.require = narrowed.require
        self.hypotheses = narrowed.hypotheses
        self.absent = narrowed.absent
        """Parameters that this version does not have, with the versions that do."""
        self.no_choices = narrowed.no_choices
        """Choices that this version does not have, by parameter, with the versions that do."""
        self.pinned = narrowed.pinned
        """Parameters that the study fixes, with their value."""
        self.no_builds = narrowed.no_builds
        """Builds that the study does not have, by parameter."""
        self.left_out = narrowed.left_out
        """Hypotheses that cannot be launched here, with the reason."""

    def configuration(self, values: Mapping[str, Value]) -> Configuration:
        """The canonical configuration of these values, defaults filled in.

        Raises SpaceError for an unknown name, a value outside its domain, a forbidden combination.
        """
        configuration = self._canonical(values)
        reason = self._broken(configuration.as_dict())
        if reason is not None:
            raise SpaceError(f"forbidden: {reason}")
        return configuration

    def broken(self, values: Mapping[str, Value]) -> str | None:
        """The reason of the first forbid or require that the values break, once canonical.

        Raises SpaceError for an unknown name or a value outside its domain.
        """
        rule = self.broken_rule(values)
        return None if rule is None else rule.reason

    def broken_rule(self, values: Mapping[str, Value]) -> Forbid | Require | None:
        """The first forbid or require that the values break. Raises as `broken` does."""
        return self._broken_rule(self._canonical(values).as_dict())

    def active(self, values: Mapping[str, Value]) -> frozenset[str]:
        """The parameters whose `when` holds, defaults filled in. Raises as `broken` does."""
        return frozenset(self._canonical(values).as_dict())

    def settings(self, configuration: Configuration) -> Settings:
        """What the engine is told; null leaves a flag, a variable or a build out.

        A bool variable is `1`, and when false absent (`presence`) or `0` (`value`). What is pinned
        the study itself tells, as it wrote it; how a bool is spelt is said for it all the same.
        """
        flags: dict[str, Value] = {}
        env: dict[str, str] = {}
        styles: dict[str, str] = {}
        build: str | None = None
        for name, value in configuration.values:
            parameter = self.parameters[name]
            flag, declared = flag_of(name, parameter), self.definition.parameters[name]
            if flag is not None and isinstance(declared, BoolParameter):
                styles[flag] = declared.style
            if value is None or name in self.pinned:
                continue
            if flag is not None:
                flags[flag] = value
            elif parameter.env is not None:
                env.update(_variable(parameter.env, declared, value))
            else:
                build = str(value)
        return Settings(flags=flags, env=env, build=build, bool_styles=styles)

    def hypothesis_configuration(
        self, hypothesis: Hypothesis, baseline: Configuration
    ) -> Configuration:
        """The baseline with the changes of all that the hypothesis builds on, then its own.

        Raises SpaceError as `configuration` does, and for a hypothesis that does not exist.
        """
        return self.configuration(self.hypothesis_values(hypothesis, baseline))

    def hypothesis_values(
        self, hypothesis: Hypothesis, baseline: Configuration
    ) -> dict[str, Value]:
        """As `hypothesis_configuration`, before defaults, canonical form and constraints."""
        values = baseline.as_dict()
        for ancestor in self._lineage(hypothesis, ()):
            values.update(ancestor.change)
        return values

    def values_of(self, name: str) -> list[Value] | None:
        """The grid of a parameter as `domain.grid` gives it, None where continuous; what is read
        by nothing has one value."""
        return self._grids[name]

    def size(self) -> int | None:
        """How many admissible configurations the grids hold; None where a parameter is continuous
        or more than MAX_COUNT combinations would have to be looked at."""
        return self._size

    def configurations(self) -> Iterator[Configuration]:
        """The admissible configurations of the grids, each once, always in the same order.

        Raises SpaceError where a parameter is continuous.
        """
        continuous = [name for name, values in self._grids.items() if values is None]
        if continuous:
            raise SpaceError(f"the space cannot be listed: '{continuous[0]}' is continuous")
        every = self._combinations(self._grids)
        return (self._ordered(values) for values in every if self._broken(values) is None)

    def first(self, count: int) -> list[Configuration] | None:
        """So many admissible configurations near the defaults, all where there are fewer; None
        where FIRST_LOOK combinations did not tell. Ends stand for what is continuous."""
        found: list[Configuration] = []
        usual = {name: _default_first(p, self._grids[name]) for name, p in self.parameters.items()}
        for looked_at, values in enumerate(self._combinations(usual), start=1):
            if self._broken(values) is None:
                found.append(self._ordered(values))
            if len(found) == count:
                break
            if looked_at == FIRST_LOOK:
                return None
        return found

    def neighbours(self, configuration: Configuration) -> list[Configuration]:
        """The admissible configurations one step of one parameter away.

        A parameter that the step makes active starts at its default.
        """
        found: dict[str, Configuration] = {}
        for name, value in configuration.values:
            for other in () if name in self.dead else adjacent(self.parameters[name], value):
                neighbour = self._canonical({**configuration.as_dict(), name: other})
                if self._broken(neighbour.as_dict()) is None:
                    found.setdefault(neighbour.key, neighbour)
        found.pop(configuration.key, None)
        return list(found.values())

    @cached_property
    def _size(self) -> int | None:
        if any(values is None for values in self._grids.values()):
            return None
        constrained = self.forbid or self.require
        if not constrained and not any(self._reads.values()):
            return _product(len(values or ()) for values in self._grids.values())
        always = [v or () for name, v in self._grids.items() if not self.parameters[name].when]
        if _product(len(values) for values in always) > MAX_COUNT:
            return None
        count = 0
        for looked_at, values in enumerate(self._combinations(self._grids), start=1):
            if looked_at > MAX_COUNT:
                return None
            count += self._broken(values) is None
        return count

    @cached_property
    def _reads(self) -> dict[str, list[str]]:
        """Which parameters each `when` reads."""
        return {
            name: list(parameters_of(parameter.when, self.parameters))
            for name, parameter in self.parameters.items()
        }

    @cached_property
    def _order(self) -> list[str]:
        """Parameters after all that their `when` reads, otherwise as declared."""
        order: dict[str, None] = {}

        def add(name: str) -> None:
            if name in order or name not in self.parameters:
                return
            for other in self._reads[name]:
                add(other)
            order[name] = None

        for name in self.parameters:
            add(name)
        return list(order)

    @cached_property
    def _grids(self) -> dict[str, list[Value] | None]:
        return {
            name: [self.dead[name]] if name in self.dead else grid(parameter)
            for name, parameter in self.parameters.items()
        }

    def _canonical(self, values: Mapping[str, Value]) -> Configuration:
        for name in values:
            if name in self.absent:
                raise SpaceError(f"'{name}' is only in versions {self.absent[name]}")
            if name not in self.parameters:
                meant = did_you_mean(name, self.parameters)
                raise SpaceError(f"unknown parameter '{name}'{meant}")
        active: dict[str, Value] = {}
        for name in self._order:
            parameter = self.parameters[name]
            usual = self.dead.get(name, parameter.default)
            value = _in_domain(name, parameter, values.get(name, usual))
            if holds(parameter.when, active):
                active[name] = value
        return self._ordered(active)

    def _ordered(self, values: Mapping[str, Value]) -> Configuration:
        return Configuration(
            tuple((name, values[name]) for name in self.parameters if name in values),
            frozenset(self.dead),
        )

    def _broken(self, values: Mapping[str, Value]) -> str | None:
        rule = self._broken_rule(values)
        return None if rule is None else rule.reason

    def _broken_rule(self, values: Mapping[str, Value]) -> Forbid | Require | None:
        for forbid in self.forbid:
            if holds(forbid.if_, values):
                return forbid
        for require in self.require:
            if holds(require.if_, values) and not holds(require.then, values):
                return require
        return None

    def _combinations(
        self,
        grids: Mapping[str, list[Value] | None],
        values: Mapping[str, Value] = MappingProxyType({}),
        depth: int = 0,
    ) -> Iterator[dict[str, Value]]:
        """Every canonical combination of the grids that holds `values`, the forbidden included."""
        if depth == len(self._order):
            yield dict(values)
            return
        name = self._order[depth]
        if not holds(self.parameters[name].when, values):
            yield from self._combinations(grids, values, depth + 1)
            return
        for value in grids[name] or _ends(self.parameters[name]):
            yield from self._combinations(grids, {**values, name: value}, depth + 1)

    def _lineage(self, hypothesis: Hypothesis, below: tuple[str, ...]) -> list[Hypothesis]:
        """The ancestors of a hypothesis, parents first, each once, then itself."""
        if hypothesis.id in below:
            raise SpaceError(f"hypothesis '{hypothesis.id}' depends on itself")
        lineage: list[Hypothesis] = []
        for parent in hypothesis.depends_on:
            for ancestor in self._lineage(self._hypothesis(parent), (*below, hypothesis.id)):
                if ancestor not in lineage:
                    lineage.append(ancestor)
        return [*lineage, hypothesis]

    def _hypothesis(self, identity: str) -> Hypothesis:
        for hypothesis in self.hypotheses:
            if hypothesis.id == identity:
                return hypothesis
        raise SpaceError(f"there is no hypothesis '{identity}'")


def _in_domain(name: str, parameter: Parameter, value: Value) -> Value:
    try:
        return canonical(parameter, value)
    except NotInDomain as error:
        raise SpaceError(f"'{name}' cannot be {show(value)}: expected {error}") from None


def _variable(variable: str, parameter: Parameter, value: Value) -> dict[str, str]:
    if not isinstance(parameter, BoolParameter):
        return {variable: value if isinstance(value, str) else show(value)}
    absent = not value and parameter.style == "presence"
    return {} if absent else {variable: "1" if value else "0"}


def _default_first(parameter: Parameter, values: list[Value] | None) -> list[Value]:
    values = _ends(parameter) if values is None else values
    return sorted(values, key=lambda value: not same(value, parameter.default))


def _ends(parameter: Parameter) -> list[Value]:
    return [getattr(parameter, "low", None), getattr(parameter, "high", None)]


def _product(counts: Iterator[int]) -> int:
    product = 1
    for count in counts:
        product *= count
    return product
