"""What of a space exists for one study: by the engine's version, by what is fixed or left unsaid,
by builds. Pure.

A space is written for many versions and many hosts. For one study, a parameter whose `versions` do
not admit the engine's does not exist, one whose flag or variable is fixed has that one value, and a
build parameter selects only builds that the study has. Hypotheses that this contradicts are left
out, with the reason.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tuner.definitions.domain import NotInDomain, canonical, same, show
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    FloatParameter,
    Hypothesis,
    IntParameter,
    Parameter,
    SpaceDefinition,
    Value,
)
from tuner.definitions.versions import admits


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The study that a space is read for: its engine's version, what it fixes by parameter, what
    its baseline leaves to the engine, and the builds it has. None where that is not known: nothing
    is then narrowed by it."""

    version: str | None = None
    pins: Mapping[str, Value] = field(default_factory=dict)
    unsaid: Collection[str] = ()
    builds: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """The parameters and hypotheses that are left, and why others are not.

    `absent` holds the parameters that this version does not have, with their specifier; `pinned`
    those that a fixed flag or variable sets, with its value; `no_builds` the builds that the study
    does not have, by parameter; `left_out` the hypotheses, with the reason.
    """

    parameters: Mapping[str, Parameter]
    hypotheses: tuple[Hypothesis, ...]
    absent: Mapping[str, str]
    pinned: Mapping[str, Value]
    no_builds: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]


def narrow(definition: SpaceDefinition, scope: Scope) -> Narrowed:
    """What is left of a space for one study."""
    absent = {
        name: parameter.versions
        for name, parameter in definition.parameters.items()
        if parameter.versions is not None and not admits(parameter.versions, scope.version)
    }
    there = {n: p for n, p in definition.parameters.items() if n not in absent}
    pinned = {name: value for name, value in scope.pins.items() if name in there}
    missing = _missing_builds(there, scope.builds)
    parameters = {
        name: _pinned(parameter, pinned[name])
        if name in pinned
        else _unsaid(parameter)
        if name in scope.unsaid
        else _buildable(parameter, missing.get(name, ()))
        for name, parameter in there.items()
    }
    narrowed = Narrowed(
        parameters=parameters,
        hypotheses=(),
        absent=absent,
        pinned=pinned,
        no_builds=missing,
        left_out={},
    )
    left_out = dict(_left_out(definition, narrowed))
    return without(narrowed, definition.hypotheses, left_out)


def without(
    narrowed: Narrowed, hypotheses: Collection[Hypothesis], reasons: Mapping[str, str]
) -> Narrowed:
    """The same with these hypotheses only, but for those that a reason leaves out and all that
    builds on them."""
    left_out = dict(reasons)
    while fallen := {
        h.id: f"builds on '{parent}'"
        for h in hypotheses
        for parent in h.depends_on
        if h.id not in left_out and parent in left_out
    }:
        left_out |= fallen
    return Narrowed(
        parameters=narrowed.parameters,
        hypotheses=tuple(h for h in hypotheses if h.id not in left_out),
        absent=narrowed.absent,
        pinned=narrowed.pinned,
        no_builds=narrowed.no_builds,
        left_out={**narrowed.left_out, **left_out},
    )


def pinned_value(parameter: Parameter, written: Value) -> Value:
    """What a parameter is where its flag or variable is fixed: the value of its domain that the
    text stands for, or else the value as it is written.

    A flag that stands alone is off where it is left out.
    """
    if isinstance(parameter, BoolParameter):
        if written is None and parameter.style == "presence":
            return False
        words = {"1": True, "true": True, "0": False, "false": False}
        return words.get(written.lower(), written) if isinstance(written, str) else written
    if not isinstance(written, str):
        return written
    return next((v for v in _meant(parameter, written) if _is_in(parameter, v)), written)


def _meant(parameter: Parameter, text: str) -> Iterator[Value]:
    yield text
    if isinstance(parameter, ChoiceParameter):
        yield from (c for c in parameter.choices if c is not None and str(c) == text)
    elif isinstance(parameter, IntParameter | FloatParameter):
        try:
            yield int(text) if isinstance(parameter, IntParameter) else float(text)
        except ValueError:
            return


def _is_in(parameter: Parameter, value: Value) -> bool:
    try:
        canonical(parameter, value)
    except NotInDomain:
        return False
    return True


def _pinned(parameter: Parameter, value: Value) -> Parameter:
    return ChoiceParameter(
        type="choice",
        flag=parameter.flag,
        env=parameter.env,
        choices=[value],
        default=value,
        note=parameter.note,
    )


def _unsaid(parameter: Parameter) -> Parameter:
    """The same with null in its domain and for its default, so that the search tries that too."""
    if _is_in(parameter, None):
        return parameter
    if not isinstance(parameter, BoolParameter):
        return parameter.model_copy(update={"default": None})
    if parameter.style == "presence":
        return parameter
    return ChoiceParameter(
        type="choice",
        flag=parameter.flag,
        env=parameter.env,
        when=parameter.when,
        versions=parameter.versions,
        choices=[None, False, True],
        note=parameter.note,
    )


def _missing_builds(
    parameters: Mapping[str, Parameter], builds: Collection[str] | None
) -> dict[str, tuple[str, ...]]:
    if builds is None:
        return {}
    found = {
        name: tuple(str(c) for c in p.choices if c is not None and c not in builds)
        for name, p in parameters.items()
        if p.build and isinstance(p, ChoiceParameter)
    }
    return {name: missing for name, missing in found.items() if missing}


def _buildable(parameter: Parameter, missing: Collection[str]) -> Parameter:
    if not missing or not isinstance(parameter, ChoiceParameter):
        return parameter
    choices = [choice for choice in parameter.choices if choice not in missing]
    default = None if parameter.default in missing else parameter.default
    return parameter.model_copy(update={"choices": choices or [None], "default": default})


def _left_out(definition: SpaceDefinition, narrowed: Narrowed) -> Iterator[tuple[str, str]]:
    for hypothesis in definition.hypotheses:
        reasons = (_obstacle(narrowed, name, v) for name, v in hypothesis.change.items())
        reason = next((reason for reason in reasons if reason), None)
        if reason:
            yield hypothesis.id, reason


def _obstacle(narrowed: Narrowed, name: str, value: Value) -> str | None:
    """Why a change cannot be made in this study."""
    if name in narrowed.absent:
        return f"changes {name}, which is not in this version"
    if name in narrowed.pinned and not same(narrowed.pinned[name], value):
        return f"changes {name}, which is fixed at {show(narrowed.pinned[name])}"
    if value in narrowed.no_builds.get(name, ()):
        return f"the study has no build {show(value)}"
    return None
