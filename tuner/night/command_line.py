"""What the engine's own command line says to a study: asked of each of its builds."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner import engines
from tuner.definitions.findings import Findings
from tuner.definitions.flag_checks import check_flags, dead_flags, flag_notes
from tuner.definitions.validation import LoadedStudy
from tuner.errors import DefinitionError, Problem
from tuner.flags.catalogue import Catalogue
from tuner.flags.record import recorded_versions
from tuner.night.launches import launch_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A catalogue of flags for each build that could be asked, the engine's own first; `unasked`
    says of the others why not."""

    catalogues: tuple[Catalogue, ...]
    unasked: tuple[str, ...]

    @property
    def dead(self) -> dict[str, str]:
        """Flags that are read by nothing, whatever the build, with a sentence each.

        Nothing is proven where a build could not be asked, or only some could: the others may be
        patched.
        """
        recorded = {catalogue.how == "recorded" for catalogue in self.catalogues}
        return {} if self.unasked or len(recorded) > 1 else dead_flags(self.catalogues)

    def unverified(self) -> list[str]:
        """What of the flags could not be verified here, one sentence each."""
        said = [_judged_by(catalogue) for catalogue in self.catalogues]
        return list(dict.fromkeys([*filter(None, said), *self.unasked]))


def command_line(study: LoadedStudy) -> CommandLine:
    """The flags of the engine as it is installed here, or else as they were recorded."""
    launch = launch_spec(study, study.baseline)
    builds = [None, *study.definition.engine.builds]
    asked = [engines.catalogue(launch.model_copy(update={"build": build})) for build in builds]
    return CommandLine(
        catalogues=tuple(catalogue for catalogue in asked if catalogue is not None),
        unasked=tuple(
            _unasked(study, build)
            for build, catalogue in zip(builds, asked, strict=True)
            if catalogue is None
        ),
    )


def problems(
    study: LoadedStudy, line: CommandLine, other_version: str | None = None
) -> tuple[Problem, ...]:
    """Each flag, and each value of one, that a launch would die of; and `other_version`, the one
    that is installed where it is not the one that the study states."""
    findings = Findings()
    for source in study.sources.values():
        findings.mention(source.name)
    if other_version is not None:
        engine = study.definition.engine
        message = f"found {engine.version}, and the {engine.name} here is {other_version}"
        findings.add(study.sources["study"], ("engine", "version"), message)
    check_flags(study, line.catalogues, findings)
    try:
        findings.settled(study)
    except DefinitionError as error:
        return error.problems
    return ()


def notes(study: LoadedStudy, line: CommandLine) -> list[str]:
    """What of the study's flags a launch survives and a person wants to know."""
    return flag_notes(study, line.catalogues)


def _judged_by(catalogue: Catalogue) -> str | None:
    if catalogue.how == "recorded":
        return f"flags: judged by the recorded parser of {catalogue.title}, which is not asked here"
    if catalogue.how == "source":
        return (
            f"flags: judged by the source of {catalogue.title}, which could not be imported:"
            " choices that it computes were not judged"
        )
    return None


def _unasked(study: LoadedStudy, build: str | None) -> str:
    engine = study.definition.engine
    which = engine.name if build is None else f"the build '{build}' of {engine.name}"
    version = f", version {engine.version}" if engine.version else ""
    return f"flags: {which} cannot be asked here{version}{_recorded(engine.name)}"


def _recorded(engine: str) -> str:
    versions: Sequence[str] = recorded_versions(engine)
    return f"; recorded are {', '.join(versions)}" if versions else ""
