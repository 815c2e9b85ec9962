"""What is measured, and on what: kept beside the records, compared before a study continues."""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

import tuner
from tuner import engines
from tuner.definitions.models import EngineDefinition, Objective, Value
from tuner.definitions.space import Space, shown
from tuner.definitions.validation import LoadedStudy
from tuner.engines.image_launch import image_ids
from tuner.engines.spelling import shown_argv
from tuner.errors import RecordsError, SpaceError, StudyChanged, StudyError, remedy
from tuner.flags.secrets import HIDDEN, hides
from tuner.hosts.executor import HostInfo
from tuner.night.launches import launch_spec
from tuner.records import TrialRecord, in_json, read_regular, sync_folder

FILE = "environment.json"
DEAD = "dead flags"
"""Where flags are kept that are read by nothing: what is one configuration depends on them."""
SCHEMA = 1
_WORDS = frozenset({"type", "flag", "env", "style", "note", "reason", "depends_on"})
"""What stands in a space beside values; it holds no secret."""
_RESTORE = "Restore it from a copy, or copy the study file to a new folder and measure anew."


def identity(study: LoadedStudy, hosts: Sequence[HostInfo]) -> dict[str, Any]:
    """What must stay the same for records to be comparable.

    Budget, sampler and the words of hypotheses are free to change; so is a new hypothesis. Raises
    HostError where a container runtime does not answer.
    """
    images = image_ids(study.definition.engine, study.folder)
    return {
        "engine version": engines.version(launch_spec(study, study.baseline)),
        **({"images": images} if images else {}),
        "hardware": {
            "gpu model": sorted({host.gpu_model or "none" for host in hosts}),
            "cpu model": sorted({host.cpu_model for host in hosts}),
            "gpus": study.definition.hardware.gpus,
        },
        **({DEAD: study.dead} if study.dead else {}),
        **_written(study),
    }


def _written(study: LoadedStudy) -> dict[str, Any]:
    """The part that stands in the definition files."""
    definition = study.definition
    space = study.space.definition.model_dump(mode="json", by_alias=True)
    space["hypotheses"] = {
        h["id"]: {"change": h["change"], "depends_on": h["depends_on"]} for h in space["hypotheses"]
    }
    for kind in ("forbid", "require"):
        space[kind] = [
            {key: said for key, said in rule.items() if said is not None} for rule in space[kind]
        ]
    written = {
        "engine": _engine(definition.engine),
        "model": definition.model,
        "fixed": definition.fixed.model_dump(mode="json"),
        "baseline": study.baseline.as_dict(),
        "space": space,
        "objective": _measured(study.objective),
        "surface": study.digests.get("surface"),
        "trace": study.digests.get("trace"),
    }
    parameters = study.space.parameters.items()
    secrets = {name for name, p in parameters if shown(name, p, "a value") == HIDDEN}
    return {name: _shown((name,), value, secrets) for name, value in written.items()}


def _engine(engine: EngineDefinition) -> dict[str, Any]:
    """How it is launched; what only containers go by counts only where there are any."""
    left_out = {"ready_timeout_s", "start_s"}
    if not any(launch.image for launch in (engine, *engine.builds.values())):
        left_out.add("containers")
    return engine.model_dump(mode="json", exclude=left_out)


def _shown(place: tuple[str, ...], value: Any, secrets: Set[str]) -> Any:
    """A written value without secrets: one that is renewed is then no change.

    `secrets` are the parameters whose values are hidden wherever they stand.
    """
    if isinstance(value, dict):
        return {name: _shown((*place, name), below, secrets) for name, below in value.items()}
    if isinstance(value, list) and place[-1] in ("command", "options"):
        return list(shown_argv(value))
    if isinstance(value, list):
        return [_shown(place, below, secrets) for below in value]
    if not isinstance(value, str) or place[0] == "engine":
        return value
    if place[0] == "space" and place[-1] in _WORDS:
        return value
    hidden = hides(place, value) or not secrets.isdisjoint(place)
    return HIDDEN if hidden else value


def changed_version(records: Iterable[TrialRecord], space: Space) -> tuple[str, str] | None:
    """The first two versions that servers of one build said they were, None where all agree.

    This holds also where the version cannot be asked before a launch.
    """
    builds = [name for name, parameter in space.parameters.items() if parameter.build]
    first: dict[tuple[Value, ...], str] = {}
    for record in records:
        version = record.facts.version
        if version is not None:
            was = first.setdefault(tuple(record.values.get(name) for name in builds), version)
            if was != version:
                return was, version
    return None


def refuse_other_version(folder: Path, records: Iterable[TrialRecord], space: Space) -> None:
    """Raises StudyChanged where the records are of two versions of the engine."""
    changed = changed_version(records, space)
    if changed is not None:
        _refuse(folder, _difference("engine version", *changed))


def remember_or_refuse(folder: Path, now: Mapping[str, Any]) -> None:
    """Write the identity of a new study, or compare it with what its records were measured as.

    Raises StudyChanged, naming the first difference with both sides; RecordsError where the file
    is damaged, missing beside records, or of a newer version; StudyError where it cannot be
    written.
    """
    path = folder / FILE
    now = json.loads(json.dumps(now))
    if not path.exists():
        _remember(path, now)
        return
    changed = _said(_stored(path), now)
    if changed:
        _refuse(folder, changed)


def _refuse(folder: Path, changed: str) -> NoReturn:
    raise StudyChanged(
        f"{folder}: {changed}",
        hint="Put it back, or copy the study file to a new folder: numbers from before and "
        "after cannot be compared.",
    )


def remembered(folder: Path) -> Mapping[str, Any] | None:
    """What the records of a study were measured as and on; None before the first launch.

    Raises RecordsError where what was remembered is damaged or of a newer version.
    """
    path = folder / FILE
    return _stored(path) if path.exists() else None


def remembered_dead(folder: Path) -> dict[str, str] | None:
    """Flags that were known to be read by nothing when the records were begun, with a sentence
    each; None before the first launch. Raises RecordsError as `remembered` does."""
    was = remembered(folder)
    dead = {} if was is None else was.get(DEAD, {})
    if not isinstance(dead, dict) or not all(isinstance(said, str) for said in dead.values()):
        raise _damaged(folder / FILE, f"expected a sentence for each of '{DEAD}'")
    return None if was is None else dead


def measured_by(folder: Path) -> dict[str, str]:
    """The program and the system that a study was begun with; empty before the first launch.

    Raises RecordsError as `remembered` does.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    _stored(path)
    machine = json.loads(path.read_text()).get("machine", {})
    return {str(name): str(value) for name, value in dict(machine).items()}


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """How two identities, or parts of them, differ: each place with both values."""
    return [
        f"{where} is {_short(was)} in the one and {_short(now)} in the other"
        for where, was, now in _differences(one, other, "")
    ]


def changed_since(study: LoadedStudy) -> str:
    """How the definition files differ from those that the records were made by; empty if not.

    Raises RecordsError where what was remembered is damaged or of a newer version.
    """
    path = study.folder / FILE
    if not path.exists():
        if not _has_records(study.folder):
            return ""
        return f"{FILE} is missing, and nothing else says what the records are of"
    gpus = {"gpus": study.definition.hardware.gpus}
    now = json.loads(json.dumps({**_written(study), "hardware": gpus}))
    was = {name: value for name, value in _stored(path).items() if name in now}
    return _said({**was, "hardware": {"gpus": was.get("hardware", {}).get("gpus")}}, now)


def refuse_changed(study: LoadedStudy, records: Iterable[TrialRecord]) -> None:
    """Refuse to continue what is no longer the same, as far as that shows without a host.

    Raises StudyChanged, and RecordsError where what was remembered is damaged, missing beside
    records, or of a newer version, or where records have values that the space does not admit.
    """
    if (study.folder / FILE).exists():
        changed = changed_since(study)
        if changed:
            _refuse(study.folder, changed)
    else:
        _refuse_missing(study.folder / FILE)
    for record in records:
        try:
            study.space.configuration(record.values)
        except SpaceError as error:
            raise RecordsError(
                f"{study.folder / 'trials.jsonl'}: trial {record.number} has values that the space "
                f"does not admit: {error.message}",
                hint="Are these the records of another study? Restore its own, or begin a new one "
                "in another folder.",
            ) from error


def _refuse_missing(path: Path) -> None:
    if _has_records(path.parent):
        raise RecordsError(
            f"{path}: missing, though there are records: nothing says what they were measured on",
            hint=_RESTORE,
        )


def _has_records(folder: Path) -> bool:
    records = folder / "trials.jsonl"
    return records.exists() and records.stat().st_size > 0


def _said(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first difference with both sides, and how many more there are."""
    differences = list(_differences(was, now, ""))
    if not differences:
        return ""
    more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
    return _difference(*differences[0]) + more


def _difference(where: str, was: Any, now: Any) -> str:
    return f"{where} was {_short(was)} when the records were made and is {_short(now)} now"


def _remember(path: Path, now: Mapping[str, Any]) -> None:
    """Whole or not at all: a run that is killed here has measured nothing yet."""
    _refuse_missing(path)
    content = {"schema_number": SCHEMA, "identity": now, "machine": _machine()}
    new = path.with_suffix(".new")
    try:
        with new.open("w") as out:
            out.write(json.dumps(content, indent=1) + "\n")
            out.flush()
            os.fsync(out.fileno())
        new.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StudyError(
            f"{path}: cannot be written: {error.strerror}",
            hint=f"Nothing was started. {remedy(error)}, then run again.",
        ) from error


def _stored(path: Path) -> Mapping[str, Any]:
    text = read_regular(path, expected="what the records were measured on", hint=_RESTORE)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = (
            f"expected JSON ({in_json(error)})" if text.strip() else "expected JSON, found nothing"
        )
        raise _damaged(path, found) from error
    schema = content.get("schema_number") if isinstance(content, dict) else None
    if not isinstance(schema, int) or schema < 1:
        raise _damaged(path, "expected an object with a schema_number of 1 or more")
    if schema > SCHEMA:
        raise RecordsError(
            f"{path}: written by a newer version (schema {schema}, this one reads up to {SCHEMA})",
            hint="Use the version that wrote it.",
        )
    stored = content.get("identity")
    if not isinstance(stored, dict) or not isinstance(stored.get("hardware"), dict):
        raise _damaged(path, "expected an identity with its hardware")
    return {**stored, "objective": _with_defaults(stored.get("objective"))}


def _with_defaults(objective: Any) -> Any:
    """An objective as it would be kept now: one from before a key was known has its default."""
    try:
        read = Objective.model_validate_json(json.dumps(objective))
    except ValidationError:
        return objective  # differs from any that can be read, and is told so
    return _measured(read)


def _measured(objective: Objective) -> dict[str, Any]:
    """What of an objective numbers depend on: to admit another output is a choice of afterwards."""
    return objective.model_dump(mode="json", exclude={"decision": {"differing"}})


def _damaged(path: Path, found: str) -> RecordsError:
    return RecordsError(f"{path}: damaged: {found}", hint=_RESTORE)


def _differences(was: Any, now: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted(was.keys() | now.keys()):
            if where.endswith("hypotheses") and name not in was:
                continue
            inner = f"{where}.{name}" if where else name
            yield from _differences(was.get(name), now.get(name), inner)
    elif was != now:
        yield where, was, now


def _short(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _machine() -> dict[str, str]:
    return {
        "tuner": tuner.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
