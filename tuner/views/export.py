"""The command to launch tomorrow: the winner's, or the baseline's where nothing beats it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tuner import engines
from tuner.definitions.paths import absence
from tuner.definitions.space import Configuration
from tuner.definitions.validation import LoadedStudy
from tuner.engines.base import LaunchCommand, LaunchSpec
from tuner.engines.images import own_port
from tuner.engines.spelling import references, shown_argv
from tuner.errors import StudyChanged, TunerError
from tuner.frozen import Frozen
from tuner.night.ending import unfinished
from tuner.night.environment import changed_since, remembered
from tuner.night.launches import launch_command, launch_spec
from tuner.records import TrialRecord
from tuner.verdicts.arms import Arms
from tuner.verdicts.decision import conclusion
from tuner.verdicts.limits import broken_words
from tuner.views.cautions import cautions
from tuner.views.replica_set import replica_commands
from tuner.views.results import outcome_words, rehearsal
from tuner.views.words import so_far

_PATH = re.compile(r"(?:^|[\"'=:,\s])(/[^\"'=:,\s]+)")
"""A path in a word, alone or inside a list or a JSON value."""


class Container(Frozen):
    """How the launch runs in a container: by which image, or one that is yet to be named.

    `program` holds the first words of the command as they are inside; `mounts` are the host's
    paths that the command names, at the same place inside; `options` are the study's own;
    `publish` are ports of the host and those behind them, on the bridge network.
    """

    image: str | None
    runtime: str = "docker"
    network: Literal["host", "bridge"] = "host"
    options: list[str] = []
    publish: list[str] = []
    program: list[str]
    mounts: list[str]


class Export(Frozen):
    """A launch as it runs when pasted, and why it is this one.

    `command` holds no port, host or seed that the tuner added, and no secret: those are asked for
    by `${NAME:?set NAME}` in the command, and are `${NAME}` elsewhere. `program` is how many words
    of `argv` come before the engine's own arguments; `gpus` is 0 where it was measured without.
    `replicas` holds a command for each server where the host holds several, else none. `unfinished`
    is how far the study is where the choice is its verdict before its end, else empty. `cautions`
    are what to know of it before it serves.
    """

    schema_number: int = 1
    study: str
    engine: str
    command: str
    argv: list[str]
    env: dict[str, str]
    program: int
    gpus: int
    port: int
    container: Container
    replicas: list[str] = []
    trial: int | None
    why: str
    cautions: list[str] = []
    unfinished: str = ""
    rehearsal: bool

    @property
    def arguments(self) -> list[str]:
        """What the engine is told, after its program."""
        return self.argv[self.program :]

    @property
    def secret_env(self) -> dict[str, str]:
        """The variables whose values refer to others, which no file may hold."""
        return {name: value for name, value in self.env.items() if references(value)}

    @property
    def plain_env(self) -> dict[str, str]:
        """The variables that may be written as they are."""
        return {name: value for name, value in self.env.items() if not references(value)}

    @property
    def argument_secrets(self) -> list[str]:
        """The variables that the arguments refer to."""
        return list(dict.fromkeys(name for word in self.argv for name in references(word)))


def export(study: LoadedStudy, records: Sequence[TrialRecord], trial: int | None = None) -> Export:
    """The launch of the winner, of the baseline, or of the trial that was asked for.

    Raises TunerError for a trial that does not exist; StudyChanged where a verdict is asked for of
    records that were made by other definition files.
    """
    arms = Arms(records, study.objective, study.baseline.key)
    configuration, number, why = _choose(study, arms, records, trial)
    launch, spec = launch_command(study, configuration), launch_spec(study, configuration)
    argv, env = list(launch.shown_argv()), launch.shown_env()
    program = _program(argv)
    engine = engines.create(spec)
    gpus = engine.gpus_needed() if _on_gpus(study, launch) else 0
    port = study.definition.serve.port or engine.usual_port
    return Export(
        study=study.folder.resolve().name,
        engine=engine.name,
        command=launch.shell(),
        argv=argv,
        env=env,
        program=program,
        gpus=gpus,
        port=port,
        container=_container(spec, launch, argv, program, gpus, port),
        replicas=replica_commands(study, configuration, port),
        trial=number,
        why=why,
        cautions=cautions(study, arms, [r for r in arms.records if r.key == configuration.key]),
        unfinished="" if trial is not None else unfinished(study, records),
        rehearsal=rehearsal(study),
    )


def _choose(
    study: LoadedStudy, arms: Arms, records: Sequence[TrialRecord], trial: int | None
) -> tuple[Configuration, int | None, str]:
    if trial is not None:
        record = find(records, trial)
        why = f"Trial {trial}, as asked for: {outcome_words(study, record)}."
        why += _warned(arms, [record])
        return study.space.configuration(record.values), trial, why
    changed = changed_since(study)
    if changed:
        raise StudyChanged(
            f"{study.folder}: {changed}",
            hint="Put it back, or ask for one launch with --trial: which won cannot be said.",
        )
    verdict = conclusion(records, study.objective, study.baseline.key)
    said = so_far(unfinished(study, records), verdict.sentence)
    winner = next((r for r in records if r.key == verdict.winner_key), None)
    if winner is None:
        why = f"{said} This is the baseline.{_warned(arms, arms.baseline)}"
        return study.baseline, None, why
    return study.space.configuration(winner.values), winner.number, said


def _warned(arms: Arms, launches: Sequence[TrialRecord]) -> str:
    broken = broken_words(arms, launches)
    said = f" WARNING: it {broken}." if broken else ""
    wrong = next(filter(None, (arms.outputs.differs(r.number) for r in launches)), "")
    return said + (f" WARNING: its output is {wrong}." if wrong else "")


def find(records: Sequence[TrialRecord], number: int) -> TrialRecord:
    """The record of that trial. Raises TunerError, naming those that exist."""
    for record in records:
        if record.number == number:
            return record
    known = f"0 to {max(r.number for r in records)}" if records else "none yet"
    raise TunerError(f"there is no trial {number}", hint=f"Trials of this study: {known}.")


def _program(argv: Sequence[str]) -> int:
    """How many words come before the engine's own: up to its model, by flag or after `serve`."""
    for at, word in enumerate(argv):
        if word in ("--model", "--model-path"):
            return at
        if at and argv[at - 1] == "serve":
            return at
    return len(argv)


def _on_gpus(study: LoadedStudy, launch: LaunchCommand) -> bool:
    """Whether it runs on GPUs: not a rehearsal, not an image for machines without, and not where
    the host that was measured had none."""
    if rehearsal(study) or (launch.image is not None and not launch.image.all_gpus):
        return False
    measured = remembered(study.folder)
    return measured is None or bool(measured.get("hardware", {}).get("gpu model") != ["none"])


def flags(arguments: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each flag without its dashes, with the words that belong to it; a first word that is none
    is the model."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for word in arguments:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found.append((name, (value,) if equals else ()))
        elif not found:
            found.append(("model", (word,)))
        else:
            name, values = found[-1]
            found[-1] = (name, (*values, word))
    return found


def _container(
    spec: LaunchSpec,
    launch: LaunchCommand,
    argv: Sequence[str],
    program: int,
    gpus: int,
    port: int,
) -> Container:
    """That of the study's image, or one that would do for an image yet to be named."""
    words, image = list(argv[:program]), launch.image
    if image is not None:
        return Container(
            image=image.image,
            runtime=image.runtime,
            network=image.network,
            options=list(shown_argv(image.options)),
            publish=list(image.publish or [own_port(port)]) if image.network == "bridge" else [],
            program=words,
            mounts=list(image.mounts),
        )
    inside = [_inside(word, at == 0) for at, word in enumerate(words)]
    named = [*inside, *argv[program:], *launch.shown_env().values()]
    return Container(
        image=None,
        # Ranks exchange tensors through shared memory, of which a container has 64 MB by itself.
        options=["--ipc=host"] if gpus else [],
        program=inside,
        mounts=sorted({path for word in named for path in _paths(word, spec.model)}),
    )


def _inside(word: str, first: bool) -> str:
    """A program of this host by the name that an image knows it by."""
    name = Path(word).name
    if word.startswith("/") and name.startswith("python"):
        return "python3"
    return name if first and word.startswith("/") else word


def _paths(word: str, model: str) -> list[str]:
    """The host's paths that a word names; the model counts though it may not be here."""
    if word.startswith("/") and (word == model or not absence(Path(word))):
        return [word]
    return [path for path in _PATH.findall(word) if path != "/" and not absence(Path(path))]
