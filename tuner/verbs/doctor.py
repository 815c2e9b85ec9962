"""Before a night: is this machine fit, and is the study ready to run on it?"""

import os
import re
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tuner import engines
from tuner.definitions.paths import absence
from tuner.definitions.validation import LoadedStudy
from tuner.engines.interpreter import in_folder
from tuner.errors import RecordsError, StudyError
from tuner.frozen import Frozen
from tuner.hosts.checks import judged
from tuner.hosts.inspection import inspect_host
from tuner.hosts.questions import Check, Needs, State
from tuner.lock import locked
from tuner.night.command_line import CommandLine, command_line, problems
from tuner.night.environment import changed_since
from tuner.night.launches import launch_spec
from tuner.night.opening import open_study
from tuner.records import Records, TrialRecord
from tuner.verbs.inspect import not_ready, too_large
from tuner.views import results
from tuner.views.plan import Plan
from tuner.views.plan import plan as planned

_VERSION = re.compile(r"(\d+)\.(\d+)")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_UNSET = re.compile(r"needs the variable (\w+), which is not set")
_TOLERANCE = timedelta(minutes=1)


class Diagnosis(Frozen):
    """All checks, what fails first; `ready` is False where any does."""

    schema_number: int = 1
    host: str
    study: str | None
    checks: list[Check]
    ready: bool


_WORST_FIRST = ("fail", "warn", "unknown", "ok")


def examine(path: Path | None) -> Diagnosis:
    """Look at this machine and, where one is given, at a study. Removes what dead runs left, and
    changes nothing else. Raises DefinitionError for a study with faults."""
    study = None if path is None else open_study(path)
    seen = inspect_host(study.folder if study else None)
    checks = judged(seen, _needs(study))
    if study is not None:
        checks += _of_the_study(study)
    return Diagnosis(
        host=socket.gethostname(),
        study=results.name(study) if study else None,
        checks=sorted(checks, key=lambda check: _WORST_FIRST.index(check.state)),
        ready=all(check.state != "fail" for check in checks),
    )


def _needs(study: LoadedStudy | None) -> Needs:
    if study is None:
        return Needs()
    return Needs(
        gpus=study.definition.hardware.gpus,
        real_gpus=not results.rehearsal(study),
        concurrency=max(rung.concurrency or 0 for rung in study.objective.ladder) or None,
        cuda=_cuda(study),
    )


def _cuda(study: LoadedStudy) -> tuple[int, int] | None:
    version = engines.create(launch_spec(study, study.baseline)).cuda()
    found = _VERSION.match(version or "")
    return (int(found[1]), int(found[2])) if found else None


def _of_the_study(study: LoadedStudy) -> list[Check]:
    faults = not_ready(study)
    checks = [*engine_checks(study, faults), *model_checks(study), *host_checks(study)]
    checks += [
        Check(name="study", state="fail", found=p.message, mend=f"correct {p.path} at {p.where}")
        for p in too_large(study)
    ]
    try:
        records = list(Records(study.folder))
        changed = changed_since(study)
    except RecordsError as error:
        return [*checks, Check(name="records", state="fail", found=error.message, mend=error.hint)]
    plan = planned(study, records)
    return [*checks, *record_checks(study, records, changed), budget_check(study, plan)]


def engine_checks(study: LoadedStudy, faults: Sequence[str]) -> list[Check]:
    """The engine starts from its interpreter or its image, and says its version."""
    mend = f"correct it in {study.folder}/study.yaml, or install what is missing"
    found = [
        Check(name="engine", state="fail", found=fault, mend=_export(fault) or mend)
        for fault in faults
        if not fault.startswith("the model ")
    ]
    if found:
        return found
    name = study.definition.engine.name
    version = engines.version(launch_spec(study, study.baseline))
    if version is None:
        said = f"{name}; its version is not known before a launch"
        return [Check(name="engine", state="unknown", found=said, mend="name engine.python")]
    ok = Check(name="engine", state="ok", found=f"{name} {version}")
    return [ok, *flag_checks(study, command_line(study))]


def flag_checks(study: LoadedStudy, line: CommandLine) -> list[Check]:
    """The engine can be imported, since its own parser answers, and takes the study's flags."""
    refused = [
        Check(name="flags", state="fail", found=p.message, mend=f"correct {p.path} at {p.where}")
        for p in problems(study, line)
    ]
    unasked = [] if results.rehearsal(study) else line.unverified()
    if not unasked:
        said = "the engine's own parser knows them all"
        return refused or [Check(name="flags", state="ok", found=said)]
    launch = study.definition.engine
    state: State = "fail" if launch.python and not study.definition.hardware.ray else "unknown"
    module = f"{launch.python} -c 'import {launch.name}'" if launch.python else ""
    return refused + [
        Check(
            name="engine import",
            state=state,
            found=said.removeprefix("flags: "),
            mend=f"{module} says why it cannot be imported" if module else "tuner check",
        )
        for said in unasked
    ]


def _export(fault: str) -> str:
    unset = _UNSET.search(fault)
    return f"export {unset[1]}=..." if unset else ""


def model_checks(study: LoadedStudy) -> list[Check]:
    """The model is there and readable, or will be fetched."""
    model = study.definition.model
    if results.rehearsal(study):
        return []
    path = Path(in_folder(study.folder, model)).expanduser()
    absent = absence(path)
    if not absent:
        return [_readable(path)]
    if not _HUB_NAME.fullmatch(model):
        mend = f"correct model in {study.folder}/study.yaml"
        return [Check(name="model", state="fail", found=f"{model} {absent}", mend=mend)]
    cached = _hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    if cached.is_dir():
        return [Check(name="model", state="ok", found=f"{model}, in {cached.parent.parent}")]
    said = f"{model} is not on this machine: the first launch would fetch it"
    mend = f"hf download {model}"
    return [Check(name="model", state="warn", found=said, mend=mend)]


def _readable(path: Path) -> Check:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    refused = next((file for file in files if not os.access(file, os.R_OK)), None)
    if refused is not None:
        mend = f"chmod -R a+rX {path}"
        return Check(name="model", state="fail", found=f"{refused} cannot be read", mend=mend)
    if not files:
        return Check(name="model", state="fail", found=f"{path} is empty", mend="fetch it again")
    size_gb = sum(file.stat().st_size for file in files) / 1e9
    return Check(name="model", state="ok", found=f"{path}: {len(files)} files, {size_gb:.3g} GB")


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE", str(Path(home) / "hub")))


def host_checks(study: LoadedStudy) -> list[Check]:
    """No other run has the study; what is not looked at is said."""
    checks = []
    try:
        with locked(study.folder):
            pass
    except StudyError as error:
        checks.append(Check(name="lock", state="fail", found=error.message, mend=error.hint))
    address = study.definition.hardware.ray
    if address:
        said = f"the hosts of {address} are not looked at from here"
        mend = "run tuner doctor on each of them"
        checks.append(Check(name="cluster", state="unknown", found=said, mend=mend))
    return checks


def record_checks(study: LoadedStudy, records: Sequence[TrialRecord], changed: str) -> list[Check]:
    """The records can be continued, and none is from the future."""
    if changed:
        mend = "put it back, or copy the study file to a new folder"
        return [Check(name="records", state="fail", found=changed, mend=mend)]
    latest = max((_started(record) for record in records), default=None)
    if latest is not None and latest > datetime.now(UTC) + _TOLERANCE:
        said = f"a launch began at {latest:%Y-%m-%d %H:%M} UTC, which is yet to come"
        mend = "set the clock: sudo timedatectl set-ntp true"
        return [Check(name="records", state="fail", found=said, mend=mend)]
    said = f"{len(records)} launches so far" if records else "none yet"
    return [Check(name="records", state="ok", found=said)]


def _started(record: TrialRecord) -> datetime:
    begun = datetime.fromisoformat(record.started_at)
    return begun if begun.tzinfo else begun.replace(tzinfo=UTC)


def budget_check(study: LoadedStudy, plan: Plan) -> Check:
    """What the budget leaves is enough for a launch, and for what is planned."""
    mend = f"raise budget in {study.folder}/study.yaml"
    deadline = study.definition.budget.deadline
    until = f", until {deadline}" if deadline else ""
    trials = study.definition.budget.trials
    if trials is not None and plan.launches_made >= trials:
        made = "its launch is" if trials == 1 else f"its {trials} launches are"
        said = f"{made} made; a larger budget in study.yaml goes on"
        return Check(name="budget", state="ok", found=said)
    if plan.launches_left == 0:
        said = f"no launch fits any more ({plan.launch_s:.0f} s each{until})"
        return Check(name="budget", state="fail", found=said, mend=mend)
    dropped = sum(part.dropped for part in plan.parts)
    wanted = dropped + sum(part.launches for part in plan.parts)
    hours = f"{plan.minutes / 60:.1f} h"
    if dropped:
        said = f"{wanted - dropped} of {wanted} planned launches fit ({hours}{until})"
        return Check(name="budget", state="warn", found=said, mend=f"{mend}; see tuner plan")
    return Check(name="budget", state="ok", found=f"{wanted} launches, about {hours}{until}")
