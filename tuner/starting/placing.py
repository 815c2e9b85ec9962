"""A launch and a space → what is fixed and what the baseline is. Pure.

A flag or variable that the space searches belongs to the baseline where its value lies in the
domain. Everything else is fixed; outside its domain, or where the space has it only under another
condition, it pins the parameter, and the reason is kept beside it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.definitions.conditions import parameters_of
from tuner.definitions.counted import counted
from tuner.definitions.domain import NotInDomain, canonical, show
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    Fixed,
    IntParameter,
    Parameter,
    SpaceDefinition,
    StudyDefinition,
    Value,
)
from tuner.definitions.space import Space, flag_of
from tuner.definitions.together import space_of
from tuner.engines.spelling import references
from tuner.errors import SpaceError, TunerError
from tuner.flags.secrets import is_secret_flag, is_secret_variable
from tuner.starting.arguments import Text
from tuner.starting.shell import PLACEHOLDER
from tuner.starting.vocabulary import SIZES

_CONDITION = "the space has it only under a condition"
_WORDS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}


@dataclass(slots=True, kw_only=True)
class Placed:
    """What is fixed and what is searched from; `why` says of a fixed flag or variable why it is
    not part of the baseline, where the space has it; `secrets` are variables to be set; `added` are
    defaults of the space that the launch says and the command does not; `launch_flags` are all
    flags of the baseline's launch."""

    flags: dict[str, Value] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    baseline: dict[str, Value] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    launch_flags: dict[str, Value] = field(default_factory=dict)
    secrets: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What a launch is placed in: a space, as it is for a study of this engine and version."""

    definition: SpaceDefinition
    study: StudyDefinition
    version: str | None

    def space(self, placed: Placed) -> Space:
        """The space that is left beside what is fixed."""
        fixed = Fixed(flags=placed.flags, env=placed.env)
        changes = {"fixed": fixed, "baseline": placed.baseline}
        return space_of(self.study.model_copy(update=changes), self.definition, self.version)


def place(
    flags: Mapping[str, Text],
    env: Mapping[str, str],
    definition: SpaceDefinition,
    study: StudyDefinition,
    version: str | None,
) -> Placed:
    """Where each flag and variable of a launch belongs; `study` is one without any of them, whose
    `hardware.gpus` no value that is searched exceeds.

    Raises TunerError for a placeholder that was left in, and where the launch does what the space
    forbids.
    """
    placed = Placed()
    setting = _Setting(definition=definition, study=study, version=version)
    space = setting.space(placed)
    for name, text in flags.items():
        _place_flag(placed, space, name, text)
    for name, value in env.items():
        _place_variable(placed, space, name, value)
    _keep_to_host(placed, space, study.hardware.gpus)
    _settle(placed, setting)
    _note_added(placed, _leave_to_engine(placed, setting))
    return placed


def placeholder_free(where: str, text: str) -> str:
    """The text itself. Raises TunerError where `<something>` stands in it for what only the person
    knows."""
    _, mark, after = text.partition(PLACEHOLDER)
    if mark:
        found = re.split(r"[^\w.-]", after)[0]
        raise TunerError(
            f"{where}: found the placeholder <{found}>", hint="Put the real value there."
        )
    return text


def _place_flag(placed: Placed, space: Space, name: str, text: Text) -> None:
    text = _without_secret(placed, name, text) if isinstance(text, str) else text
    positive = name.removeprefix("no-") if text is True else name
    for written, meant in ((name, text), (positive, False)):
        parameter = _searching(space, flag=written)
        if parameter is not None and (written == name or _is_negatable(space, parameter)):
            reason = _try(placed, space, parameter, meant)
            if reason is None:
                return
            placed.why[name] = reason
            break
    placed.flags[name] = typed(text)


def _place_variable(placed: Placed, space: Space, name: str, value: str) -> None:
    if is_secret_variable(name, value) and not _refers(value):
        value = f"${{{name}}}"
    placeholder_free(name, value)
    placed.secrets |= dict.fromkeys(references(value))
    parameter = _searching(space, env=name)
    if parameter is not None:
        reason = _try(placed, space, parameter, value)
        if reason is None:
            return
        placed.why[name] = reason
    placed.env[name] = value


def _without_secret(placed: Placed, name: str, text: str) -> str:
    if is_secret_flag(name, text) and not _refers(text):
        text = f"${{{name.replace('-', '_').replace('.', '_').upper()}}}"
    placeholder_free(f"--{name}", text)
    placed.secrets |= dict.fromkeys(references(text))
    return text


def _refers(text: str) -> bool:
    found = references(text)
    return len(found) == 1 and text == f"${{{found[0]}}}"


def _searching(space: Space, *, flag: str | None = None, env: str | None = None) -> str | None:
    """The parameter that sets this flag or variable."""
    for name, parameter in space.parameters.items():
        if flag is not None and flag_of(name, parameter) == flag:
            return name
        if env is not None and parameter.env == env:
            return name
    return None


def _is_negatable(space: Space, name: str) -> bool:
    parameter = space.parameters[name]
    return isinstance(parameter, BoolParameter) and parameter.style == "negation"


def _try(placed: Placed, space: Space, name: str, text: Text) -> str | None:
    """Make it part of the baseline; the reason where it cannot be."""
    parameter = space.parameters[name]
    for value in _meant(parameter, text):
        try:
            placed.baseline[name] = canonical(parameter, value)
        except NotInDomain as error:
            return f"the space has {error}"
        return None
    return "the space has another kind of value"


def _meant(parameter: Parameter, text: Text) -> list[Value]:
    """The value that a text stands for, where it can stand for one of this kind."""
    if isinstance(text, bool):
        alone = not isinstance(parameter, BoolParameter) or parameter.style != "value"
        return [text] if alone else []
    if isinstance(parameter, BoolParameter):
        worded = parameter.style == "value" or parameter.env is not None
        return [_WORDS[text.lower()]] if worded and text.lower() in _WORDS else []
    if isinstance(parameter, ChoiceParameter):
        alike = (c for c in parameter.choices if c is not None and _written(c) == text)
        return [next(alike, text)]
    number = _number(text, whole=isinstance(parameter, IntParameter))
    return [] if number is None else [number]


def _number(text: str, *, whole: bool) -> Value:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        return None


def _written(value: Value) -> str:
    return value if isinstance(value, str) else show(value)


def typed(text: Text) -> Value:
    """A number where it is written again as it was, else the text."""
    if isinstance(text, bool):
        return text
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and text not in {"inf", "-inf", "nan"}:
            return value
    return text


def _keep_to_host(placed: Placed, space: Space, gpus: int) -> None:
    """Fix, as the launch has it, what the space would spread over more GPUs than the host has."""
    for name, parameter in space.parameters.items():
        flag = flag_of(name, parameter)
        sizes = [value for value in space.values_of(name) or () if isinstance(value, int)]
        if flag in SIZES and flag not in placed.flags and max(sizes, default=0) > gpus:
            placed.flags[flag] = placed.baseline.pop(name, None)
            placed.why[flag] = f"the space goes beyond the {counted(gpus, 'GPU')} here"


def _settle(placed: Placed, setting: _Setting) -> None:
    """Fix what the space does not have under these conditions; refuse what it forbids."""
    while True:
        space = setting.space(placed)
        try:
            active = space.active(placed.baseline)
            rule = space.broken_rule(placed.baseline)
        except SpaceError as error:
            raise TunerError(f"the space does not fit the command: {error.message}") from None
        loose = {name: _CONDITION for name in placed.baseline if name not in active}
        if rule is None and not loose:
            loose = _clashes(placed, space)
        if not loose:
            break
        for name, why in loose.items():
            _fix(placed, name, setting.definition.parameters[name], why)
    if rule is not None:
        raise TunerError(
            f"the command does what the space forbids: {rule.reason}",
            hint="Copy the space, take that rule out, and name the copy: --space FILE",
        )


def _clashes(placed: Placed, space: Space) -> dict[str, str]:
    """What of the baseline keeps a hypothesis of the space from being launched on top of it: fixed,
    it is the hypothesis that goes."""
    baseline = space.configuration(placed.baseline)
    for hypothesis in space.hypotheses:
        values = space.hypothesis_values(hypothesis, baseline)
        rule = space.broken_rule(values)
        conditions = [] if rule is None else [rule.if_, getattr(rule, "then", {})]
        active = space.active(values)
        conditions += [space.parameters[n].when for n in hypothesis.change if n not in active]
        read = {n for c in conditions for n in parameters_of(c, space.parameters)}
        found = [name for name in placed.baseline if name in read]
        if found:
            return dict.fromkeys(found, f"hypothesis {hypothesis.id} does not go with it")
    return {}


def _fix(placed: Placed, name: str, parameter: Parameter, why: str) -> None:
    value = placed.baseline.pop(name)
    flag = flag_of(name, parameter)
    if flag is not None:
        placed.flags[flag] = value
    elif parameter.env is not None:
        placed.env[parameter.env] = str(value)
    placed.why[flag or parameter.env or name] = why


def _leave_to_engine(placed: Placed, setting: _Setting) -> Space:
    """What the command does not say stays unsaid wherever the rules of the space admit that."""
    space = setting.space(placed)
    for name in _unsaid(placed, space):
        tried = replace(placed, baseline={**placed.baseline, name: None})
        other = setting.space(tried)
        admitted = other.broken_rule(tried.baseline) is None
        if admitted and tried.baseline.keys() <= other.active(tried.baseline):
            placed.baseline, space = tried.baseline, other
    return space


def _note_added(placed: Placed, space: Space) -> None:
    """Keep which flags and variables the baseline has beyond the command."""
    settings = space.settings(space.configuration(placed.baseline))
    placed.launch_flags = {**placed.flags, **settings.flags}
    for name in _unsaid(placed, space):
        parameter = space.parameters[name]
        value = space.configuration(placed.baseline).as_dict()[name]
        target = flag_of(name, parameter)
        if target is not None:
            placed.added.append(f"--{target} {show(value)}")
        elif parameter.env is not None:
            placed.added.append(f"{parameter.env}={show(value)}")


def _unsaid(placed: Placed, space: Space) -> list[str]:
    """The parameters that the launch would say a default of, and the command does not."""
    values = space.configuration(placed.baseline).as_dict()
    return [
        name
        for name, value in values.items()
        if value is not None
        and name not in placed.baseline
        and name not in space.pinned
        and not _is_silent(space.parameters[name], value)
    ]


def _is_silent(parameter: Parameter, value: Value) -> bool:
    """Whether a bool that is off is said by saying nothing."""
    off = isinstance(parameter, BoolParameter) and not value
    return off and isinstance(parameter, BoolParameter) and parameter.style == "presence"
