"""Where a study and its space disagree: what is fixed, the version, builds, the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.condition_checks import Checker
from tuner.definitions.conditions import parameters_of
from tuner.definitions.domain import show
from tuner.definitions.findings import Findings
from tuner.definitions.models import (
    Condition,
    Forbid,
    Hypothesis,
    Require,
    SpaceDefinition,
    StudyDefinition,
    Value,
)
from tuner.definitions.narrowing import pinned_value
from tuner.definitions.nearest import did_you_mean, nearest
from tuner.definitions.space import Configuration, Space
from tuner.definitions.space_checks import note_same_target, same_targets, target_of
from tuner.definitions.study_checks import RESERVED, fixed_names
from tuner.definitions.yaml_source import Place, Source
from tuner.errors import SpaceError
from tuner.flags.aliases import one_name


def space_of(
    study: StudyDefinition, definition: SpaceDefinition, version: str | None = None
) -> Space:
    """The space as it is for this study: in this version, with what is fixed pinned."""
    engine, fixed = study.engine.name, study.fixed
    flags = {one_name(engine, flag): value for flag, value in fixed.flags.items()}
    pins: dict[str, Value] = {}
    for name, parameter in definition.parameters.items():
        kind, target = target_of(name, parameter)
        if kind == "flag" and one_name(engine, target) in flags:
            pins[name] = pinned_value(parameter, flags[one_name(engine, target)])
        elif kind == "variable" and target in fixed.env:
            pins[name] = pinned_value(parameter, fixed.env[target])
    unsaid = [name for name, value in study.baseline.items() if value is None]
    builds = tuple(study.engine.builds)
    return Space(definition, version=version, pins=pins, unsaid=unsaid, builds=builds)


def check_together(
    source: Source, study: StudyDefinition, space_source: Source, space: Space, findings: Findings
) -> tuple[Space, Configuration] | None:
    """Note where a study and its space disagree.

    Gives the space without the hypotheses that this study's narrower space rules out, and the
    baseline in it; None where there is no baseline.
    """
    pair = _Pair(
        source=source, study=study, space_source=space_source, space=space, findings=findings
    )
    pair.check_targets()
    pair.check_builds()
    return pair.check_baseline()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A study and its space, each right by itself."""

    source: Source
    study: StudyDefinition
    space_source: Source
    space: Space
    findings: Findings

    def check_targets(self) -> None:
        """Note flags that only the tuner sets, and two parameters of this version that set one
        thing."""
        parameters = self.space.parameters
        for name, parameter in parameters.items():
            kind, target = target_of(name, parameter)
            if kind == "flag" and target in RESERVED:
                message = f"'{target}' cannot be searched: {RESERVED[target]}"
                self.findings.add(self.space_source, ("parameters", name), message, key=True)
        declared = self.space.definition.parameters
        for name, other in same_targets(parameters, self.study.engine.name):
            dated = declared[name].versions != declared[other].versions
            if dated or target_of(name, declared[name]) != target_of(other, declared[other]):
                where = f", and {self._engine} has both" if dated else ""
                note_same_target(self.space_source, declared, name, other, self.findings, where)

    @property
    def _engine(self) -> str:
        return f"{self.study.engine.name} {self.space.version or ''}".strip()

    def check_builds(self) -> None:
        """Note builds whose name only one side knows, where the other has one like it.

        Any other build that the study does not have is left out: a space serves many studies.
        """
        builds = self.study.engine.builds
        named = {choice for name in self.space.no_builds for choice in self._declared_choices(name)}
        unused = [build for build in builds if build not in named]
        for name, missing in self.space.no_builds.items():
            parameter = self.space.definition.parameters[name]
            for build in missing:
                near = nearest(build, unused)
                if near is None and parameter.default != build:
                    continue
                message = f"unknown build {show(build)}{did_you_mean(build, unused)}"
                where = self.source.where(("engine", "builds"), key=True)
                hint = f"the study ({where}) has {', '.join(builds) or 'no builds'}"
                index = self._declared_choices(name).index(build)
                place = ("parameters", name, "choices", index)
                self.findings.add(self.space_source, place, message, hint)

    def _declared_choices(self, name: str) -> list[Value]:
        return list(getattr(self.space.definition.parameters[name], "choices", ()))

    def check_baseline(self) -> tuple[Space, Configuration] | None:
        """Note what is wrong with the baseline, then with each hypothesis on top of it."""
        values = self.study.baseline
        if not self._settable(values):
            return None
        self._note_inactive(self.source, ("baseline",), values, values)
        try:
            baseline = self.space.configuration(values)
        except SpaceError as error:
            self.findings.add(
                self.source, ("baseline",), error.message, self._rule(values), key=True
            )
            return None
        left_out = {}
        for index, hypothesis in enumerate(self.space.definition.hypotheses):
            if hypothesis in self.space.hypotheses:
                reason = self._obstacle(("hypotheses", index, "change"), hypothesis, baseline)
                left_out.update({hypothesis.id: reason} if reason else {})
        self._check_something_is_left()
        return self.space.leaving_out(left_out), baseline

    def _settable(self, values: Mapping[str, Value]) -> bool:
        """Note values of the baseline for what is unknown, not in this version or fixed."""
        taken = [name for name in values if name in {*self.space.absent, *self.space.pinned}]
        for name in taken:
            place = ("baseline", name)
            if name in self.space.absent:
                versions = self.space.absent[name]
                message, hint = f"not in {self._engine} (versions {versions})", ""
            else:
                message, hint = f"set here and fixed at {self._where_fixed(name)}", "keep one"
            self.findings.add(self.source, place, message, hint, key=True)
        check = Checker(
            source=self.source, parameters=self.space.parameters, findings=self.findings
        )
        free = {name: value for name, value in values.items() if name not in taken}
        return check.values(("baseline",), free) and not taken

    def _where_fixed(self, name: str) -> str:
        kind, target = target_of(name, self.space.definition.parameters[name])
        group = "flags" if kind == "flag" else "env"
        engine, names = self.study.engine.name, fixed_names(self.source, group)
        one = one_name(engine, target) if kind == "flag" else target
        same = (n for n in names if (one_name(engine, n) if kind == "flag" else n) == one)
        return self.source.where(("fixed", group, next(same)), key=True)

    def _obstacle(
        self, place: Place, hypothesis: Hypothesis, baseline: Configuration
    ) -> str | None:
        """Note what keeps a hypothesis from being launched; where it is this study's narrower
        space, no fault but the reason why it is left out."""
        values = self.space.hypothesis_values(hypothesis, baseline)
        reason = self._note_inactive(self.space_source, place, hypothesis.change, values)
        rule = self.space.broken_rule(values)
        if rule is None:
            return reason
        conditions = [rule.if_, *([rule.then] if isinstance(rule, Require) else [])]
        if rule.versions is not None or self._is_narrowed(conditions):
            return rule.reason
        message = f"forbidden on top of the baseline: {rule.reason}"
        self.findings.add(self.space_source, place, message, self._rule(values), key=True)
        return None

    def _note_inactive(
        self, source: Source, place: Place, said: Mapping[str, Value], values: Mapping[str, Value]
    ) -> str | None:
        """Note what is said of parameters that are not active; where a hypothesis says it and a
        narrowed parameter is why, no fault but that reason."""
        active = self.space.active(values)
        left_out = None
        for name in said:
            if name in active:
                continue
            when = self.space.parameters[name].when
            reason = f"'{name}' is active only when {_written_condition(when)}"
            if place[0] == "hypotheses" and self._is_narrowed([when]):
                left_out = reason
            else:
                message = f"has no effect here: {reason}"
                self.findings.add(source, (*place, name), message, key=True)
        return left_out

    def _is_narrowed(self, conditions: Sequence[Condition]) -> bool:
        """Whether what these conditions read is less in this study than the space declares."""
        declared = self.space.definition.parameters
        space = self.space
        fewer = {*space.no_builds, *space.no_choices}
        narrowed = {*space.absent, *space.pinned, *space.unsaid, *fewer}
        seen: set[str] = set()
        ahead = list(conditions)
        while ahead:
            new = {n for n in parameters_of(ahead.pop(), declared) if n in declared} - seen
            seen |= new
            ahead += [declared[name].when for name in new]
        return not seen.isdisjoint(narrowed)

    def _check_something_is_left(self) -> None:
        space = self.space
        narrowed = space.absent or space.pinned or space.no_builds or space.no_choices
        faulty = self.findings.has_faults(self.space_source.name)
        admissible = self.space.first(2) if narrowed and not faulty else None
        if admissible is not None and len(admissible) < 2:
            left = f"nothing is left to search: for {self._engine} and what is fixed here"
            message = f"{left} it has one configuration"
            hint = "fix less, or take another space"
            self.findings.add(self.source, ("space",), message, hint, key=True)

    def _rule(self, values: Mapping[str, Value]) -> str:
        """Where the rule that the values break is written."""
        rule = self.space.broken_rule(values)
        kind = "forbid" if isinstance(rule, Forbid) else "require"
        rules: Sequence[Forbid | Require] = getattr(self.space.definition, kind)
        index = next(index for index, other in enumerate(rules) if other is rule)
        return f"the rule stands at {self.space_source.where((kind, index))}"


def _written_condition(condition: Condition) -> str:
    return " and ".join(f"{name}: {_operand(operand)}" for name, operand in condition.items())


def _operand(operand: object) -> str:
    if isinstance(operand, list):
        return f"[{', '.join(show(value) for value in operand)}]"
    if isinstance(operand, dict):
        return f"{{{', '.join(f'{name}: {show(value)}' for name, value in operand.items())}}}"
    return show(operand)
