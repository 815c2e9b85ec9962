"""What the engine's command line says against a study and its space. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.definitions.findings import Findings
from tuner.definitions.flag_judgement import Judgement, judge_name, judge_value, judge_variable
from tuner.definitions.models import BoolParameter, ChoiceParameter, Parameter, Value
from tuner.definitions.space import flag_of
from tuner.definitions.study_checks import fixed_names
from tuner.definitions.validation import LoadedStudy
from tuner.definitions.yaml_source import Place, Source
from tuner.flags.aliases import one_name
from tuner.flags.catalogue import Catalogue
from tuner.flags.names import canonical


def check_flags(study: LoadedStudy, catalogues: Sequence[Catalogue], findings: Findings) -> None:
    """Note every flag, and every value of one, that a launch would die of.

    There is a catalogue for the engine and each of its builds: what is fixed must suit all, what
    is searched one of them.
    """
    check = _Check(study=study, catalogues=catalogues, findings=findings)
    check.fixed()
    check.searched()
    check.twice()


def flag_notes(study: LoadedStudy, catalogues: Sequence[Catalogue]) -> list[str]:
    """What of the study's flags and variables a launch survives and a person wants to know."""
    flags = list(dict.fromkeys(_flags(study)))
    notes: list[str] = []
    for catalogue in catalogues:
        said = (judge_name(catalogue, flag) for flag in flags)
        notes += [j.message for j in said if j is not None and not j.stops]
        missed = (judge_variable(catalogue, name) for name in _variables(study))
        notes += [sentence for sentence in missed if sentence]
    return list(dict.fromkeys([*notes, *dead_notes(study)]))


def dead_notes(study: LoadedStudy) -> list[str]:
    """The sentences on those of the study's flags that nothing reads."""
    return list(dict.fromkeys(study.dead[flag] for flag in _flags(study) if flag in study.dead))


def dead_flags(catalogues: Sequence[Catalogue]) -> dict[str, str]:
    """Flags that no build reads, under each of their names, with a sentence that says so.

    Without a catalogue nothing is known to be dead.
    """
    if not catalogues:
        return {}
    first = catalogues[0]
    return {
        name: f"--{flag.name}: declared, read by nothing in {first.title}{_where(first, flag.name)}"
        for name, flag in first.by_name.items()
        if all(catalogue.is_dead(name) for catalogue in catalogues)
    }


def _where(catalogue: Catalogue, name: str) -> str:
    place = catalogue.dead.get(name)
    return f" ({place})" if place else ""


def _flags(study: LoadedStudy) -> Iterator[str]:
    """The flags that launches of the study can have."""
    yield from study.definition.fixed.flags
    for name, parameter in study.space.parameters.items():
        yield from filter(None, [flag_of(name, parameter)])


def _variables(study: LoadedStudy) -> list[str]:
    searched = (parameter.env for parameter in study.space.parameters.values())
    return list(dict.fromkeys([*study.definition.fixed.env, *filter(None, searched)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    study: LoadedStudy
    catalogues: Sequence[Catalogue]
    findings: Findings

    def fixed(self) -> None:
        """Flags that every launch has."""
        source, flags = self.study.sources["study"], self.study.definition.fixed.flags
        for written in fixed_names(source, "flags"):
            place, name = ("fixed", "flags", written), canonical(written)
            self._note(source, place, [judge_name(c, name) for c in self.catalogues], key=True)
            value = flags.get(name)
            self._note(source, place, [judge_value(c, name, value) for c in self.catalogues])

    def searched(self) -> None:
        """Flags that some launches have; those that are fixed as well were looked at there."""
        space = self.study.space
        for name in space.parameters.keys() - space.pinned.keys():
            parameter = space.definition.parameters[name]
            flag = flag_of(name, parameter)
            if flag is not None:
                self._parameter(name, parameter, flag)

    def _parameter(self, name: str, parameter: Parameter, flag: str) -> None:
        source, place = self.study.sources["space"], ("parameters", name)
        said = [judge_name(catalogue, flag) for catalogue in self.catalogues]
        written = (*place, "flag") if parameter.flag is not None else place
        self._note(source, written, said, key=parameter.flag is None, every=True)
        style = parameter.style if isinstance(parameter, BoolParameter) else "presence"
        gone = self.study.space.no_choices.get(name, {})
        for at, value in _values(parameter):
            if value in gone:
                continue
            judged = [judge_value(c, flag, value, style) for c in self.catalogues]
            self._note(source, (*place, *at), judged, key=not at, every=True)

    def twice(self) -> None:
        """Flags of one launch that are one flag under two names: `x` and `no-x`, or an alias that
        this version alone has."""
        if not self.catalogues:
            return
        study, space, source = self.study, self.study.space, self.study.sources["study"]
        said: dict[str, str] = {}
        for written in fixed_names(source, "flags"):
            first = said.setdefault(self._own_name(written), written)
            if not self._is_one(first, written):
                where = source.where(("fixed", "flags", first), key=True)
                message = f"the same flag as '{canonical(first)}' at {where}"
                self.findings.add(source, ("fixed", "flags", written), message, key=True)
        for name in space.parameters.keys() - space.pinned.keys():
            flag = flag_of(name, space.definition.parameters[name])
            first = said.get(self._own_name(flag), "") if flag is not None else ""
            if first:
                where = source.where(("fixed", "flags", first), key=True)
                message = f"the same flag as '{canonical(first)}', which is fixed at {where}"
                place = ("parameters", name)
                self.findings.add(study.sources["space"], place, message, key=True)

    def _own_name(self, written: str) -> str:
        found = self.catalogues[0].by_name.get(canonical(written))
        return canonical(written) if found is None else found.name

    def _is_one(self, first: str, written: str) -> bool:
        engine = self.study.definition.engine.name
        return one_name(engine, first) == one_name(engine, written)

    def _note(
        self,
        source: Source,
        place: Place,
        said: Sequence[Judgement | None],
        *,
        key: bool = False,
        every: bool = False,
    ) -> None:
        """Note the first that stops a launch; with `every` only where all do."""
        stops = [judgement for judgement in said if judgement is not None and judgement.stops]
        if stops and (not every or len(stops) == len(said)):
            self.findings.add(source, place, stops[0].message, stops[0].hint, key=key)


def _values(parameter: Parameter) -> Iterator[tuple[Place, Value]]:
    """Values that stand for all of the parameter's, each with its place."""
    if isinstance(parameter, ChoiceParameter):
        for index, choice in enumerate(parameter.choices):
            yield ("choices", index), choice
    elif isinstance(parameter, BoolParameter):
        yield (), True
    else:
        yield ("low",), parameter.low
