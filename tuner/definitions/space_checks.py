"""What can be wrong with a search space beyond its schema."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.definitions.condition_checks import Checker
from tuner.definitions.conditions import parameters_of
from tuner.definitions.cycles import find_cycle
from tuner.definitions.domain import NotInDomain, canonical, same, show
from tuner.definitions.findings import Findings
from tuner.definitions.models import (
    BoolParameter,
    ChoiceParameter,
    FloatParameter,
    Hypothesis,
    IntParameter,
    Parameter,
    SpaceDefinition,
)
from tuner.definitions.narrowing import written
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.space import Space, flag_of
from tuner.definitions.versions import is_specifier
from tuner.definitions.yaml_source import Place, Source
from tuner.flags.aliases import one_name
from tuner.flags.names import is_variable
from tuner.flags.secrets import is_secret_variable


def check_space(source: Source, definition: SpaceDefinition, findings: Findings) -> None:
    """Note everything that keeps the definition from being a space to search."""
    _SpaceCheck(source=source, definition=definition, findings=findings).run()


def target_of(name: str, parameter: Parameter) -> tuple[str, str]:
    """What a parameter sets: its kind in words, and its name in one spelling."""
    if parameter.build:
        return "build", ""
    if parameter.env is not None:
        return "variable", parameter.env
    return "flag", flag_of(name, parameter) or ""


def same_targets(
    parameters: Mapping[str, Parameter], engine: str = ""
) -> Iterator[tuple[str, str]]:
    """Each parameter that sets what another before it sets, with every such other; with an engine
    also under another name of its."""
    owners: dict[tuple[str, str], list[str]] = {}
    for name, parameter in parameters.items():
        kind, target = target_of(name, parameter)
        one = one_name(engine, target) if kind == "flag" else target
        before = owners.setdefault((kind, one), [])
        yield from ((name, other) for other in before)
        before.append(name)


def note_same_target(
    source: Source,
    parameters: Mapping[str, Parameter],
    name: str,
    other: str,
    findings: Findings,
    where: str = "",
) -> None:
    """Note that two parameters set one thing; `where` says in which version."""
    line, _ = source.mark(("parameters", other), key=True)
    what = " ".join(part for part in target_of(name, parameters[name]) if part)
    message = f"sets the same {what} as '{other}' on line {line}{where}"
    findings.add(source, ("parameters", name), message, key=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpaceCheck:
    source: Source
    definition: SpaceDefinition
    findings: Findings

    def run(self) -> None:
        for name, parameter in self.definition.parameters.items():
            for place, message, hint in _parameter_faults(name, parameter):
                self._add(("parameters", name, *place), message, hint)
        for kind in ("forbid", "require", "hypotheses"):
            for index, entry in enumerate(getattr(self.definition, kind)):
                for place, message, hint in _specifier_faults(("versions",), entry.versions):
                    self._add((kind, index, *place), message, hint)
        self._targets()
        self._conditions()
        self._hypotheses()
        if not self.findings.has_faults(self.source.name):
            self._something_to_search()

    def _add(self, place: Place, message: str, hint: str = "", *, key: bool = False) -> None:
        self.findings.add(self.source, place, message, hint, key=key)

    @property
    def _checker(self) -> Checker:
        return Checker(
            source=self.source, parameters=self.definition.parameters, findings=self.findings
        )

    def _targets(self) -> None:
        """Whether parameters of different `versions` ever meet is seen with a version at hand."""
        parameters = self.definition.parameters
        always = [
            (name, other)
            for name, other in same_targets(parameters)
            if parameters[name].versions == parameters[other].versions
        ]
        for name, other in reversed(dict(reversed(always)).items()):
            note_same_target(self.source, parameters, name, other, self.findings)

    def _conditions(self) -> None:
        check, parameters = self._checker, self.definition.parameters
        for name, parameter in parameters.items():
            check.condition(("parameters", name, "when"), parameter.when)
        for index, forbid in enumerate(self.definition.forbid):
            check.condition(("forbid", index, "if"), forbid.if_)
        for index, require in enumerate(self.definition.require):
            check.condition(("require", index, "if"), require.if_)
            check.condition(("require", index, "then"), require.then)
            check.together(("require", index, "then"), require.if_, require.then)
        reads = {name: [*parameters_of(p.when, parameters)] for name, p in parameters.items()}
        cycle = find_cycle(reads)
        if cycle is not None:
            place = ("parameters", cycle[0], "when")
            self._add(place, f"depends on itself: {' -> '.join(cycle)}", key=True)

    def _hypotheses(self) -> None:
        ids = Counter(hypothesis.id for hypothesis in self.definition.hypotheses)
        first: dict[str, int] = {}
        for index, hypothesis in enumerate(self.definition.hypotheses):
            place: Place = ("hypotheses", index)
            self._hypothesis(place, hypothesis, list(ids))
            if hypothesis.id in first:
                line, _ = self.source.mark(("hypotheses", first[hypothesis.id], "id"))
                self._add((*place, "id"), f"'{hypothesis.id}' again, first on line {line}")
            first.setdefault(hypothesis.id, index)
        parents: dict[str, list[str]] = {}
        for hypothesis in self.definition.hypotheses:
            parents.setdefault(hypothesis.id, hypothesis.depends_on)
        cycle = find_cycle(parents)
        if cycle is not None:
            place = ("hypotheses", first[cycle[0]], "depends_on")
            self._add(place, f"depends on itself: {' -> '.join(cycle)}", key=True)

    def _hypothesis(self, place: Place, hypothesis: Hypothesis, ids: Sequence[str]) -> None:
        self._checker.values((*place, "change"), hypothesis.change)
        for index, parent in enumerate(hypothesis.depends_on):
            if parent not in ids:
                near = did_you_mean(parent, ids)
                self._add((*place, "depends_on", index), f"unknown hypothesis '{parent}'{near}")
        low, high = hypothesis.gain_percent
        if low > high:
            message = f"found from {low:g} to {high:g}, expected the lower number first"
            self._add((*place, "gain_percent"), message)

    def _something_to_search(self) -> None:
        admissible = Space(self.definition).first(2)
        if admissible is None or len(admissible) == 2:
            return
        message = "only one configuration is admissible: there is nothing to search"
        if not admissible:
            message = "no configuration is admissible: forbid and require exclude all"
        self._add(("parameters",), message, key=True)


Fault = tuple[Place, str, str]


def _parameter_faults(name: str, parameter: Parameter) -> Iterator[Fault]:
    yield from _target_faults(name, parameter)
    yield from _specifier_faults(("versions",), parameter.versions)
    if isinstance(parameter, ChoiceParameter):
        yield from _choice_faults(parameter)
    elif not isinstance(parameter, BoolParameter):
        yield from _number_faults(parameter)


def _target_faults(name: str, parameter: Parameter) -> Iterator[Fault]:
    named = [
        kind
        for kind, given in (
            ("flag", parameter.flag is not None),
            ("env", parameter.env is not None),
            ("build", parameter.build),
        )
        if given
    ]
    if len(named) > 1:
        yield (named[1],), f"found {' and '.join(named)}, expected one of them", ""
    if parameter.env is not None and not is_variable(parameter.env):
        yield ("env",), f"'{parameter.env}' is no name of an environment variable", ""
    if not parameter.build and parameter.env is None and not flag_of(name, parameter):
        yield ("flag",), "found dashes alone, expected the name of a flag", ""
    if parameter.build and not _selects_builds(parameter):
        yield ("build",), "a build parameter needs choices that are names of builds or null", ""
    if isinstance(parameter, BoolParameter) and parameter.env and parameter.style == "negation":
        yield ("style",), "a variable cannot be negated", "use presence or value"


def _specifier_faults(place: Place, versions: str | None) -> Iterator[Fault]:
    if versions is not None and not is_specifier(versions):
        message = f"found {show(versions)}, expected a version specifier"
        yield place, message, "such as '>=0.5.17' or '>=0.5,<0.6'"


def _selects_builds(parameter: Parameter) -> bool:
    return isinstance(parameter, ChoiceParameter) and all(
        choice is None or isinstance(choice, str) for choice in parameter.choices
    )


def _choice_faults(parameter: ChoiceParameter) -> Iterator[Fault]:
    known = [written(choice) for choice in parameter.choices if choice is not None]
    for name, versions in (parameter.choice_versions or {}).items():
        yield from _specifier_faults(("choice_versions", name), versions)
        if name not in known:
            near = did_you_mean(name, known)
            yield ("choice_versions", name), f"'{name}' is none of the choices{near}", ""
    hidden = parameter.env is not None and is_secret_variable(parameter.env)
    for index, choice in enumerate(parameter.choices):
        if any(same(choice, other) for other in parameter.choices[:index]):
            shown = "a hidden value" if hidden else show(choice)
            yield ("choices", index), f"found {shown} for the second time", ""
    if parameter.default is not None and not any(
        same(parameter.default, choice) for choice in parameter.choices
    ):
        shown = "a hidden value" if hidden else show(parameter.default)
        yield ("default",), f"found {shown}, expected one of the choices", ""


def _number_faults(parameter: IntParameter | FloatParameter) -> Iterator[Fault]:
    if parameter.low > parameter.high:
        yield ("high",), f"found {parameter.high:g}, which is below low ({parameter.low:g})", ""
        return
    if parameter.log and parameter.low <= 0:
        yield ("low",), f"found {parameter.low:g}, expected more than 0 on a log scale", ""
        return
    if parameter.log and parameter.step not in {None, 1}:
        yield ("step",), "found a step on a log scale, expected one or the other", ""
        return
    try:
        canonical(parameter, parameter.default)
    except NotInDomain as error:
        yield ("default",), f"found {show(parameter.default)}, expected {error}", ""
