"""What crashed before, in other studies of this engine version, model and hardware.

Kept beside the studies, one record a line, in plain text: a line that is deleted is forgotten, and
so is all of it with the file. Another version of the engine is another engine here.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tuner import engines
from tuner.definitions.models import Value
from tuner.definitions.space import Configuration, Space, flag_of
from tuner.definitions.validation import LoadedStudy
from tuner.engines.interpreter import in_folder
from tuner.errors import HostError, RecordsError
from tuner.failures.classifier import Failure
from tuner.flags.names import canonical
from tuner.flags.secrets import is_secret_flag, is_secret_variable
from tuner.frozen import Frozen
from tuner.hosts.hardware import hardware_here, hardware_words
from tuner.night.environment import remembered
from tuner.night.launches import launch_spec
from tuner.records import TrialRecord, read_regular
from tuner.verdicts.standing import sure

FILE = "known_failures.jsonl"
SCHEMA = 1

logger = logging.getLogger(__name__)


class KnownFailure(Frozen):
    """One launch that died by the fault of its flags, and what it died on.

    `flags` are all flags and variables that it was launched with, secrets left out; `blame` those
    that the failure points at. `level` is the rung that it did not survive (requests a second where
    `by_rate`, else concurrency), None where it never served.
    """

    schema_number: Literal[1] = 1
    engine: str
    version: str
    model: str
    hardware: str
    study: str
    trial: int
    started_at: str
    kind: str
    cause: str
    phase: str
    level: float | None = None
    by_rate: bool = False
    blame: list[str] = []
    flags: dict[str, Value] = {}

    @property
    def settings(self) -> dict[str, Value]:
        """What is held to have killed it: the blamed flags; all of them where none is blamed."""
        blamed = {name: self.flags[name] for name in self.blame if name in self.flags}
        return blamed or self.flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known, and which lines of the file could not be read."""

    failures: tuple[KnownFailure, ...] = ()
    unread: tuple[str, ...] = ()


def hardware_of(identity: Mapping[str, Any]) -> str:
    """The hardware that a study is measured on, from its identity."""
    hardware = identity["hardware"]
    return hardware_words(hardware["gpu model"], hardware["cpu model"])


def expected_hardware(study: LoadedStudy) -> str | None:
    """That of the records of a study, or else this machine's; None where it cannot be told."""
    try:
        was = remembered(study.folder)
        return hardware_here() if was is None else hardware_of(was)
    except (HostError, RecordsError, KeyError):
        return None


def known_failures(study: LoadedStudy, hardware: str | None) -> Known:
    """What other studies beside this one know of its engine version, model and hardware.

    Nothing for a rehearsal: it says nothing of a machine.
    """
    if study.definition.engine.name == "rehearsal" or hardware is None:
        return Known()
    path = _path(study)
    try:
        content = read_regular(path, expected="what crashed before", hint="")
    except RecordsError as error:
        return Known(unread=(error.message,))
    if not content:
        return Known()
    found, unread = _parsed(path, content)
    like = (study.definition.engine.name, _version(study, study.baseline), _model(study), hardware)
    level, by_rate = max(rung.level for rung in study.objective.ladder), study.objective.by_rate
    return Known(
        failures=tuple(
            each
            for each in found
            if (each.engine, each.version, each.model, each.hardware) == like
            and each.study != _name(study)
            and (each.level is None or (each.by_rate is by_rate and each.level <= level))
        ),
        unread=tuple(unread),
    )


def _parsed(path: Path, content: bytes) -> tuple[list[KnownFailure], list[str]]:
    found, unread = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(KnownFailure.model_validate_json(line))
        except ValidationError as error:
            why = error.errors(include_url=False)[0]["msg"]
            unread.append(f"{path}:{number}: not read: {why}")
    return found, unread


def said(study: LoadedStudy, known: Known) -> list[str]:
    """A sentence for each cause that this study could meet again, and what is done about it."""
    latest: dict[tuple[str, str], KnownFailure] = {}
    for each in known.failures:
        latest[json.dumps(each.settings, sort_keys=True), each.kind] = each
    sentences = [
        f"{_died(each)}; {what}"
        for each in latest.values()
        if (what := _what_is_done(study, each)) is not None
    ]
    return [*sentences, *known.unread]


def _died(each: KnownFailure) -> str:
    what = ", ".join(f"{name}={_shown(value)}" for name, value in each.settings.items())
    at = f" at {each.level:g}" if each.level is not None else f" while {each.phase}"
    return (
        f"{what} died on this engine, model and hardware in study {each.study}, trial "
        f"{each.trial},{at}: {each.cause}"
    )


def _what_is_done(study: LoadedStudy, each: KnownFailure) -> str | None:
    """What this study does about it, None where it cannot come to it."""
    if _touches(each, _launched(study, study.baseline)):
        return "the baseline has it as well and is launched all the same"
    configured = {
        h.id: study.space.hypothesis_configuration(h, study.baseline)
        for h in study.space.hypotheses
        if not study.space.is_idle(h)
    }
    stated = [i for i, c in configured.items() if _touches(each, _launched(study, c))]
    if stated:
        names = f"hypothesis {', '.join(stated)}"
        return f"{names} is stated and is launched all the same, the search leaves it out"
    return "the search leaves it out" if _in_reach(study, each) else None


def _touches(each: KnownFailure, launched: Mapping[str, Value]) -> bool:
    """Whether a launch has everything that is held to have killed that one."""
    return all(launched.get(name) == value for name, value in each.settings.items())


def _in_reach(study: LoadedStudy, each: KnownFailure) -> bool:
    """Whether a configuration of the space could have all of it."""
    own = values_of(study.space, each)
    searched = {_spelt(study.space, name): name for name in study.space.parameters}
    fixed = _launched(study, study.baseline)
    return all(
        searched[name] in own if name in searched else fixed.get(name) == value
        for name, value in each.settings.items()
    )


def values_of(space: Space, each: KnownFailure) -> dict[str, Value]:
    """What that launch had of this space's parameters, as far as their values admit it."""
    return {
        name: value
        for name in space.parameters
        if (value := _own_value(space, name, each.flags.get(_spelt(space, name)))) is not None
    }


def named_of(space: Space, each: KnownFailure) -> frozenset[str]:
    """The parameters of this space that it was blamed on."""
    return frozenset(name for name in space.parameters if _spelt(space, name) in each.blame)


def _own_value(space: Space, name: str, value: Value) -> Value:
    """The parameter's value that reads like one of another study; None where there is none."""
    values = space.values_of(name)
    if values is None or value is None:
        return value
    return next((own for own in values if str(own).lower() == str(value).lower()), None)


def _spelt(space: Space, name: str) -> str:
    parameter = space.parameters[name]
    return parameter.env or flag_of(name, parameter) or name


def _launched(study: LoadedStudy, configuration: Configuration) -> dict[str, Value]:
    """Flags and variables of a launch, without secrets."""
    spec = launch_spec(study, configuration)
    flags = {canonical(name): value for name, value in spec.flags.items()}
    return {
        **{n: v for n, v in flags.items() if v is not None and not is_secret_flag(n, str(v))},
        **{n: v for n, v in spec.env.items() if not is_secret_variable(n, v)},
    }


class Remembering:
    """Writes down what died by the fault of its flags, as soon as that is sure.

    Sure are failures that name their flags, and others once a later launch has served: what dies
    last may die of the host. What was sure in the records `before` was an earlier run's to write.
    """

    def __init__(self, study: LoadedStudy, hardware: str, before: Sequence[TrialRecord]) -> None:
        self._study, self._hardware = study, hardware
        self._written = {record.number for record in sure(before)}
        self._silent = study.definition.engine.name == "rehearsal"

    def look(self, records: Sequence[TrialRecord]) -> None:
        """Write what is sure now and is not written yet. Where nothing can be written that is
        said once, and the study goes on."""
        if self._silent:
            return
        new = [r for r in sure(records) if r.number not in self._written]
        lines = [line for record in new if (line := self._line(record)) is not None]
        self._written |= {record.number for record in new}
        if lines and not _appended(_path(self._study), lines):
            self._silent = True

    def _line(self, record: TrialRecord) -> KnownFailure | None:
        study, failure = self._study, record.failure
        configuration = study.space.configuration(record.values)
        version = _version(study, configuration)
        if failure is None or version is None:
            return None
        return KnownFailure(
            engine=study.definition.engine.name,
            version=version,
            model=_model(study),
            hardware=self._hardware,
            study=_name(study),
            trial=record.number,
            started_at=record.started_at,
            kind=failure.kind,
            cause=failure.cause,
            phase=failure.phase,
            level=_level(study, record, failure),
            by_rate=study.objective.by_rate,
            blame=[canonical(name) for name in failure.blame],
            flags=_launched(study, configuration),
        )


def _level(study: LoadedStudy, record: TrialRecord, failure: Failure) -> float | None:
    if failure.phase not in ("ready", "serving"):
        return None
    reached = {rung.level for rung in record.rungs}
    levels = [rung.level for rung in study.objective.ladder]
    return next((level for level in levels if level not in reached), levels[-1])


def _appended(path: Path, lines: Sequence[KnownFailure]) -> bool:
    content = "".join(line.model_dump_json() + "\n" for line in lines).encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, content)  # one write: runs of other studies append as well
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning("%s: cannot be written: %s; crashes are not kept", path, error.strerror)
        return False
    return True


def _path(study: LoadedStudy) -> Path:
    return study.folder.resolve().parent / FILE


def _name(study: LoadedStudy) -> str:
    return study.folder.resolve().name


def _version(study: LoadedStudy, configuration: Configuration) -> str | None:
    return engines.version(launch_spec(study, configuration))


def _model(study: LoadedStudy) -> str:
    return in_folder(study.folder, study.definition.model)


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)
