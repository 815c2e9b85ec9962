"""What can be wrong with a study beyond its schema, alone and together with its space."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.condition_checks import Checker
from tuner.definitions.domain import show
from tuner.definitions.findings import Findings
from tuner.definitions.models import (
    ChoiceParameter,
    Condition,
    Forbid,
    Hypothesis,
    Launch,
    Require,
    StudyDefinition,
    Value,
)
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.space import Configuration, Space
from tuner.definitions.space_checks import target_of
from tuner.definitions.yaml_source import Place, Source
from tuner.errors import SpaceError
from tuner.flags.names import canonical

_RESERVED: Mapping[str, str] = {
    "host": "the tuner gives every launch its own address",
    "port": "the tuner gives every launch its own port",
    "model": "the study names it as 'model'",
    "model-path": "the study names it as 'model'",
}


def check_study(source: Source, study: StudyDefinition, findings: Findings) -> None:
    """Note what is wrong with a study by itself."""
    for place, message, hint in [*_engine_faults(study), *_budget_faults(study)]:
        findings.add(source, place, message, hint, key=True)
    _check_fixed(source, findings)


def check_together(
    source: Source,
    study: StudyDefinition,
    space_source: Source,
    space: Space,
    findings: Findings,
) -> Configuration | None:
    """Note where a study and its space disagree; the baseline where it has one."""
    pair = _Pair(
        source=source, study=study, space_source=space_source, space=space, findings=findings
    )
    pair.check_overlap()
    pair.check_builds()
    return pair.check_baseline()


Fault = tuple[Place, str, str]


def _engine_faults(study: StudyDefinition) -> Iterator[Fault]:
    engine = study.engine
    rehearsal = engine.name == "rehearsal"
    launches: dict[Place, Launch] = {("engine",): engine}
    launches |= {("engine", "builds", name): build for name, build in engine.builds.items()}
    for place, launch in launches.items():
        ways = [way for way in ("python", "command") if getattr(launch, way) is not None]
        if len(ways) > 1:
            yield (*place, ways[1]), f"found {' and '.join(ways)}, expected one way to launch", ""
        if not ways and not rehearsal:
            yield place, "no way to launch", "name one of python, command"
    if rehearsal and engine.surface is None:
        yield ("engine",), "a rehearsal needs a surface", "add 'surface: surface.yaml'"
    if not rehearsal and engine.surface is not None:
        message = f"found a surface, but {engine.name} is a real engine"
        yield ("engine", "surface"), message, "only a rehearsal has one"


def _budget_faults(study: StudyDefinition) -> Iterator[Fault]:
    budget = study.budget
    if budget.trials is None and budget.hours is None and budget.deadline is None:
        yield ("budget",), "no limit", "name at least one of trials, hours, deadline"


def _check_fixed(source: Source, findings: Findings) -> None:
    seen: dict[str, str] = {}
    for written in _written(source, "flags"):
        place, flag = ("fixed", "flags", written), canonical(written)
        if flag in _RESERVED:
            findings.add(source, place, f"'{flag}' cannot be fixed: {_RESERVED[flag]}", key=True)
        if not flag:
            message = "found dashes alone, expected the name of a flag"
            findings.add(source, place, message, key=True)
        if flag in seen:
            line, _ = source.mark(("fixed", "flags", seen[flag]), key=True)
            findings.add(source, place, f"flag '{flag}' again, first on line {line}", key=True)
        seen.setdefault(flag, written)


def _written(source: Source, kind: str) -> list[str]:
    """The names under fixed.flags or fixed.env as they are written."""
    fixed = source.value.get("fixed") or {}
    return list(fixed.get(kind) or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A study and its space, each right by itself."""

    source: Source
    study: StudyDefinition
    space_source: Source
    space: Space
    findings: Findings

    def check_overlap(self) -> None:
        """Note what is both fixed and searched, and searched flags that only the tuner sets."""
        fixed = {("flag", canonical(name)): ("flags", name) for name in self._fixed("flags")}
        fixed |= {("variable", name): ("env", name) for name in self._fixed("env")}
        for name, parameter in self.space.parameters.items():
            kind, target = target_of(name, parameter)
            where = self.space_source.where(("parameters", name), key=True)
            if (kind, target) in fixed:
                group, written = fixed[kind, target]
                message = f"{kind} '{target}' is fixed here and searched as '{name}' ({where})"
                place = ("fixed", group, written)
                self.findings.add(self.source, place, message, "keep one", key=True)
            if kind == "flag" and target in _RESERVED:
                message = f"'{target}' cannot be searched: {_RESERVED[target]}"
                self.findings.add(self.space_source, ("parameters", name), message, key=True)

    def _fixed(self, kind: str) -> list[str]:
        return _written(self.source, kind)

    def check_builds(self) -> None:
        """Note builds that the space selects and the study does not have."""
        builds = self.study.engine.builds
        for name, parameter in self.space.parameters.items():
            if not parameter.build or not isinstance(parameter, ChoiceParameter):
                continue
            for index, choice in enumerate(parameter.choices):
                if choice is not None and choice not in builds:
                    message = f"unknown build {show(choice)}{did_you_mean(str(choice), builds)}"
                    where = self.source.where(("engine", "builds"), key=True)
                    hint = f"the study ({where}) has {', '.join(builds) or 'no builds'}"
                    place = ("parameters", name, "choices", index)
                    self.findings.add(self.space_source, place, message, hint)

    def check_baseline(self) -> Configuration | None:
        """Note what is wrong with the baseline, then with each hypothesis on top of it."""
        check = Checker(
            source=self.source, parameters=self.space.parameters, findings=self.findings
        )
        values = self.study.baseline
        if not check.values(("baseline",), values):
            return None
        self._note_inactive(self.source, ("baseline",), values, values)
        try:
            baseline = self.space.configuration(values)
        except SpaceError as error:
            self.findings.add(
                self.source, ("baseline",), error.message, self._rule(values), key=True
            )
            return None
        for index, hypothesis in enumerate(self.space.hypotheses):
            self._check_hypothesis(("hypotheses", index, "change"), hypothesis, baseline)
        return baseline

    def _check_hypothesis(
        self, place: Place, hypothesis: Hypothesis, baseline: Configuration
    ) -> None:
        values = self.space.hypothesis_values(hypothesis, baseline)
        self._note_inactive(self.space_source, place, hypothesis.change, values)
        reason = self.space.broken(values)
        if reason is not None:
            message = f"forbidden on top of the baseline: {reason}"
            self.findings.add(self.space_source, place, message, self._rule(values), key=True)

    def _note_inactive(
        self,
        source: Source,
        place: Place,
        said: Mapping[str, Value],
        values: Mapping[str, Value],
    ) -> None:
        active = self.space.active(values)
        for name in said:
            if name not in active:
                condition = _written_condition(self.space.parameters[name].when)
                message = f"has no effect here: '{name}' is active only when {condition}"
                self.findings.add(source, (*place, name), message, key=True)

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
