"""Definition files → checked values, or every fault of every file at once."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeVar

from pydantic import BaseModel, ValidationError

from tuner.definitions.findings import Findings
from tuner.definitions.lengths import Lengths as Lengths
from tuner.definitions.lengths import lengths_of as lengths_of
from tuner.definitions.models import (
    ChoiceParameter,
    Objective,
    SpaceDefinition,
    StudyDefinition,
)
from tuner.definitions.nearest import did_you_mean
from tuner.definitions.objective_checks import check_objective, check_trace
from tuner.definitions.paths import NO_FILE, fault, study_file
from tuner.definitions.schema_errors import report, without_unknown_keys
from tuner.definitions.space import Configuration, Space, flag_of
from tuner.definitions.space_checks import check_space
from tuner.definitions.study_checks import check_study
from tuner.definitions.surface import Surface
from tuner.definitions.together import check_together, space_of
from tuner.definitions.trace import Trace, read_trace
from tuner.definitions.versions import is_version
from tuner.definitions.yaml_source import Place, Source, read
from tuner.errors import DefinitionError, Problem
from tuner.flags import sglang_table

Model = TypeVar("Model", bound=BaseModel)
VersionOf = Callable[[Path, StudyDefinition], str | None]
"""The version of the engine that a study in this folder would launch, None where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStudy:
    """A study whose files agree.

    `folder` is absolute: jobs run in another folder than the one where its name was typed.
    `digests` holds one for each of `study`, `space`, `objective`, `surface`,
    `trace`: of what they say, not of how it is written.
    """

    folder: Path
    definition: StudyDefinition
    space: Space
    objective: Objective
    baseline: Configuration
    lengths: Lengths
    trace: Trace | None = None
    surface: Surface | None = None
    digests: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict, repr=False)
    """The files of `study` and `space` as they are written: for what is found wrong later."""
    dead: dict[str, str] = field(default_factory=dict)
    """Flags that are declared and read by nothing, each with a sentence that says so."""

    @property
    def idle(self) -> dict[str, str]:
        """Hypotheses that change nothing but dead flags, each with the sentence that says so."""
        return {
            hypothesis.id: "; ".join(self._said_dead(name) for name in hypothesis.change)
            for hypothesis in self.space.hypotheses
            if self.space.is_idle(hypothesis)
        }

    def _said_dead(self, name: str) -> str:
        return self.dead[flag_of(name, self.space.parameters[name]) or name]

    def knowing(self, dead: Mapping[str, str]) -> Self:
        """The same study where these flags are known to be read by nothing."""
        space = self.space.ignoring(dead, self.baseline)
        baseline = space.configuration(self.baseline.as_dict())
        return replace(self, space=space, baseline=baseline, dead=dict(dead))


def load(path: Path, model: type[Model]) -> Model:
    """One definition file, checked by itself. Raises DefinitionError with all of its faults."""
    loader = _Loader()
    value = loader.load(path, model)
    return loader.findings.settled(value)


def load_objective(path: Path) -> tuple[Objective, Lengths, Trace | None]:
    """An objective by itself, with the lengths of its requests and the trace that has them.

    Raises DefinitionError with the faults of all files.
    """
    loader = _Loader()
    objective = loader.load(path, Objective)
    trace = loader.trace(objective)
    settled = loader.findings.settled(objective)
    return settled, lengths_of(settled, trace), trace


def load_study(path: Path, version_of: VersionOf | None = None) -> LoadedStudy:
    """A study by its folder or its file, with all that it refers to, checked together.

    A space with `versions` is read for the engine's version: the one that the study states, or
    else `version_of`'s. Raises DefinitionError with the faults of all files.
    """
    study_path, loader = study_file(path), _Loader(version_of=version_of)
    study = loader.load(study_path, StudyDefinition)
    space_definition = loader.refer(("space",), SpaceDefinition)
    objective = loader.refer(("objective",), Objective)
    trace = loader.trace(objective)
    loader.speaks(study, objective)
    surface = loader.refer(("engine", "surface"), Surface) if loader.rehearses() else None
    space, baseline = loader.together(study, space_definition)
    settled = loader.findings.settled
    return LoadedStudy(
        folder=study_path.parent.resolve(),
        definition=settled(study),
        space=settled(space),
        objective=settled(objective),
        baseline=settled(baseline),
        lengths=lengths_of(settled(objective), trace),
        trace=trace,
        surface=surface,
        digests={
            name: _digest(value)
            for name, value in {
                "study": study,
                "space": space_definition,
                "objective": objective,
                "surface": surface,
                "trace": trace and _played(trace, settled(objective)),
            }.items()
            if value is not None
        },
        sources={
            "study": loader.sources[StudyDefinition],
            "space": loader.sources[SpaceDefinition],
        },
    )


@dataclass(slots=True)
class _Loader:
    """Loads files one after the other and keeps what was found in any of them."""

    version_of: VersionOf | None = None
    findings: Findings = field(default_factory=Findings)
    sources: dict[type[BaseModel], Source] = field(default_factory=dict)

    def load(self, path: Path, model: type[Model]) -> Model | None:
        """The value of a file, or None where it has none; faults are noted either way."""
        name = os.path.normpath(path)
        self.findings.mention(name)
        try:
            repeated: list[Problem] = []
            source = self.sources[model] = read(path, name=name, repeated=repeated)
            self.findings.extend(name, repeated)
            value = model.model_validate_json(json.dumps(source.value))
        except DefinitionError as error:
            self.findings.extend(name, error.problems)
            return None
        except ValidationError as error:
            report(error, source, model, self.findings)
            rest = without_unknown_keys(error, source.value)
            known = None if rest is None else _validated(rest, model)
            if known is None:
                return None
            value = known
        _check_alone(source, value, self.findings)
        return value

    def refer(self, place: Place, model: type[Model]) -> Model | None:
        """The value of a file that the study names at a place, where it names one."""
        source = self.sources.get(StudyDefinition)
        path = (
            self._referred(source, place, "a YAML file", "*.y*ml") if source is not None else None
        )
        return self.load(path, model) if path is not None else None

    def trace(self, objective: Objective | None) -> Trace | None:
        """The trace that the objective names, where it names one."""
        source = self.sources.get(Objective)
        path = None
        if source is not None and objective is not None and objective.trace is not None:
            path = self._referred(source, ("trace",), "JSON lines", "*.json*")
        if path is None:
            return None
        name = os.path.normpath(path)
        read = read_trace(path, name)
        if isinstance(read, Trace):
            if source is not None and objective is not None:
                check_trace(source, objective, read, self.findings)
            return read
        self.findings.extend(name, read)
        return None

    def speaks(self, study: StudyDefinition | None, objective: Objective | None) -> None:
        """Note a way of asking that the engine does not have."""
        if study is None or objective is None:
            return
        if objective.api == "generate" and study.engine.name == "vllm":
            message = "found 'generate', which is SGLang's, and the study's engine is vllm"
            self.findings.add(self.sources[Objective], ("api",), message, "completions or chat")

    def _referred(self, source: Source, place: Place, kind: str, pattern: str) -> Path | None:
        """The file that is named at a place of another, where it is there."""
        reference = _text_at(source, place)
        if not reference:
            return None
        path = Path(source.name).parent / reference
        message = fault(path, kind)
        if not message:
            return path
        if message != NO_FILE:
            self.findings.add(source, place, f"{message}: {os.path.normpath(path)}")
            return None
        others = {o.name for o in path.parent.glob(pattern)} - {Path(source.name).name}
        near = did_you_mean(path.name, sorted(others))
        message = f"no such file: {os.path.normpath(path)}{near}"
        owner = "objective" if source is self.sources.get(Objective) else "study"
        hint = f"paths start at the folder of the {owner} file" if not near else ""
        self.findings.add(source, place, message, hint)
        return None

    def rehearses(self) -> bool:
        """Whether the study, right or wrong, names the rehearsal engine."""
        source = self.sources.get(StudyDefinition)
        return source is not None and _text_at(source, ("engine", "name")) == "rehearsal"

    def together(
        self, study: StudyDefinition | None, definition: SpaceDefinition | None
    ) -> tuple[Space | None, Configuration | None]:
        """The space and the baseline in it, as far as the files allow."""
        if definition is None or self.findings.has_faults(self.sources[SpaceDefinition].name):
            return None, None
        if study is None:
            return Space(definition), None
        version = self._version(study, definition)
        if version is None and has_versions(definition):
            return Space(definition), None
        space = space_of(study, definition, version)
        source, space_source = self.sources[StudyDefinition], self.sources[SpaceDefinition]
        both = check_together(source, study, space_source, space, self.findings)
        return both or (space, None)

    def _version(self, study: StudyDefinition, definition: SpaceDefinition) -> str | None:
        """The version that the space is read for; noted where it is needed and unknown."""
        stated, engine = study.engine.version, study.engine.name
        if stated is not None:
            return stated if is_version(stated) else None
        if engine == "rehearsal":
            return sglang_table.VERSION
        if not has_versions(definition):
            return None
        source = self.sources[StudyDefinition]
        folder = Path(source.name).parent.resolve()
        found = self.version_of(folder, study) if self.version_of is not None else None
        if found is not None and is_version(found):
            return found
        name = self.sources[SpaceDefinition].name
        message = f"{name} has parameters by version, and the version of {engine} is not known here"
        self.findings.add(source, ("engine",), message, "say engine.version", key=True)
        return None


def has_versions(definition: SpaceDefinition) -> bool:
    """Whether anything in a space depends on the engine's version."""
    parameters = definition.parameters.values()
    dated = [*parameters, *definition.forbid, *definition.require, *definition.hypotheses]
    return any(each.versions is not None for each in dated) or any(
        isinstance(each, ChoiceParameter) and each.choice_versions for each in parameters
    )


def _validated(document: object, model: type[Model]) -> Model | None:
    try:
        return model.model_validate_json(json.dumps(document))
    except ValidationError:
        return None


def _check_alone(source: Source, value: BaseModel, findings: Findings) -> None:
    if isinstance(value, StudyDefinition):
        check_study(source, value, findings)
    elif isinstance(value, SpaceDefinition):
        check_space(source, value, findings)
    elif isinstance(value, Objective):
        check_objective(source, value, findings)


def _text_at(source: Source, place: Place) -> str | None:
    value = source.value
    for part in place:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _played(trace: Trace, objective: Objective) -> Trace:
    """What of a trace an objective plays: its times only where requests come as they did."""
    times = trace.offsets_s if objective.arrivals == "trace" else None
    return trace.model_copy(update={"offsets_s": times, "left_out": 0})


def _digest(value: BaseModel) -> str:
    # Of a trace only what it has: what traces may have by now is no change of older ones.
    only_set = isinstance(value, Trace)
    dumped = value.model_dump(mode="json", by_alias=True, exclude_defaults=only_set)
    text = json.dumps(dumped, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
