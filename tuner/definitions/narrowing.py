"""What of a space exists for one study: by the engine's version, by what is fixed or left unsaid,
by builds. Pure.

A space is written for many versions and many hosts. For one study, a parameter whose `versions` do
not admit the engine's does not exist, one whose flag or variable is fixed has that one value, and a
build parameter selects only builds that the study has. Hypotheses that this contradicts are left
out, with the reason.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tuner.definitions.domain import NotInDomain, canonical, same, show
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    FloatParameter,
    Forbid,
    Hypothesis,
    IntParameter,
    Parameter,
    Require,
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

    `absent` holds the parameters that this version does not have, with their specifier, and
    `no_choices` such choices, by parameter; `pinned` parameters that a fixed flag or variable sets,
    with its value; `no_builds` the builds that the study does not have, by parameter; `left_out`
    the hypotheses, with the reason.
    """

    parameters: Mapping[str, Parameter]
    forbid: tuple[Forbid, ...]
    require: tuple[Require, ...]
    hypotheses: tuple[Hypothesis, ...]
    absent: Mapping[str, str]
    no_choices: Mapping[str, Mapping[str, str]]
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
    no_choices = {name: _no_choices(p, scope.version) for name, p in there.items()}
    no_builds = {name: _no_builds(p, scope.builds) for name, p in there.items()}
    parameters = {
        name: _pinned(parameter, pinned[name])
        if name in pinned
        else _unsaid(_fewer(parameter, {*no_choices[name], *no_builds[name]}), scope, name)
        for name, parameter in there.items()
    }
    narrowed = Narrowed(
        parameters=parameters,
        forbid=tuple(r for r in definition.forbid if admits(r.versions, scope.version)),
        require=tuple(r for r in definition.require if admits(r.versions, scope.version)),
        hypotheses=(),
        absent=absent,
        no_choices={name: gone for name, gone in no_choices.items() if gone},
        pinned=pinned,
        no_builds={name: builds for name, builds in no_builds.items() if builds},
        left_out={},
    )
    left_out = dict(_left_out(definition, narrowed, scope.version))
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
    return replace(
        narrowed,
        hypotheses=tuple(h for h in hypotheses if h.id not in left_out),
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


def _unsaid(parameter: Parameter, scope: Scope, name: str) -> Parameter:
    """The same, where the study leaves it to the engine with null in its domain and for its
    default, so that the search tries that too."""
    if name not in scope.unsaid or _is_in(parameter, None):
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


def _no_choices(parameter: Parameter, version: str | None) -> dict[str, str]:
    if not isinstance(parameter, ChoiceParameter):
        return {}
    stated = (parameter.choice_versions or {}).items()
    return {choice: versions for choice, versions in stated if not admits(versions, version)}


def _no_builds(parameter: Parameter, builds: Collection[str] | None) -> tuple[str, ...]:
    if builds is None or not parameter.build or not isinstance(parameter, ChoiceParameter):
        return ()
    return tuple(str(c) for c in parameter.choices if c is not None and c not in builds)


def _fewer(parameter: Parameter, gone: Collection[str]) -> Parameter:
    """The parameter without these choices; a default among them is left to the engine."""
    if not gone or not isinstance(parameter, ChoiceParameter):
        return parameter
    choices = [choice for choice in parameter.choices if written(choice) not in gone]
    default = None if written(parameter.default) in gone else parameter.default
    return parameter.model_copy(update={"choices": choices or [None], "default": default})


def written(choice: Value) -> str:
    """A choice as a key of `choice_versions` names it: `true`, `8`, `none`."""
    return choice if isinstance(choice, str) else show(choice)


def _left_out(
    definition: SpaceDefinition, narrowed: Narrowed, version: str | None
) -> Iterator[tuple[str, str]]:
    for hypothesis in definition.hypotheses:
        if not admits(hypothesis.versions, version):
            yield hypothesis.id, f"is for versions {hypothesis.versions}"
            continue
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
    if value is not None and written(value) in narrowed.no_choices.get(name, ()):
        return f"sets {name} to {show(value)}, which is not in this version"
    return None
