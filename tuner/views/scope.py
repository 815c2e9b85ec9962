"""What of its space a study searches, and why the rest is not searched."""

from tuner.definitions.models import Value
from tuner.definitions.space import shown
from tuner.definitions.validation import LoadedStudy
from tuner.definitions.versions import admits
from tuner.frozen import Frozen
from tuner.views.words import spelt


class Scope(Frozen):
    """`absent` holds parameters and choices (`name = choice`) that the engine's version does not
    have, with the versions that do; `pinned` parameters that `fixed` sets, no secret; `no_builds`
    builds that the study does not have; `other_versions` hypotheses that are for others,
    `left_out` those that cannot be launched here, with the reason."""

    engine: str
    version: str | None
    absent: dict[str, str]
    pinned: dict[str, Value]
    no_builds: list[str]
    other_versions: list[str]
    left_out: dict[str, str]

    def sentences(self) -> list[str]:
        """All of it in words, one sentence a line."""
        absent = [f"{name} (versions {versions})" for name, versions in self.absent.items()]
        pinned = [f"{name} = {_written(value)}" for name, value in self.pinned.items()]
        said = [
            (f"not in {self.engine} {self.version}", absent),
            ("pinned by fixed", pinned),
            ("builds that the study does not have", self.no_builds),
            ("hypotheses for other versions", self.other_versions),
        ]
        left_out = [f"left out: {name}: {reason}" for name, reason in self.left_out.items()]
        return [f"{what}: {', '.join(which)}" for what, which in said if which] + left_out


def scope(study: LoadedStudy) -> Scope:
    """What of the space this study searches."""
    space = study.space
    pinned = {n: shown(n, space.parameters[n], value) for n, value in space.pinned.items()}
    choices = {
        f"{name} = {choice}": versions
        for name, gone in space.no_choices.items()
        for choice, versions in gone.items()
    }
    builds = [build for builds in space.no_builds.values() for build in builds]
    stated = {h.id: h.versions for h in space.definition.hypotheses}
    others = [name for name in space.left_out if not admits(stated[name], space.version)]
    return Scope(
        engine=study.definition.engine.name,
        version=space.version,
        absent={**space.absent, **choices},
        pinned=pinned,
        no_builds=list(dict.fromkeys(builds)),
        other_versions=others,
        left_out={name: why for name, why in space.left_out.items() if name not in others},
    )


def searched(study: LoadedStudy) -> int:
    """How many parameters have more than one value to try."""
    values = (study.space.values_of(name) for name in study.space.parameters)
    return sum(each is None or len(each) > 1 for each in values)


def _written(value: Value) -> str:
    return "null" if value is None else spelt(value)
