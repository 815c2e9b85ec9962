"""Append-only truth: `trials.jsonl`, one record a line, fsynced; and the lock on a study."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import ValidationError

from tuner.definitions.models import Value
from tuner.engines.base import EngineFacts
from tuner.engines.overrides import Override
from tuner.errors import RecordsError, StudyBusy, StudyError
from tuner.failures.classifier import Failure
from tuner.frozen import Frozen
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.quality import OutputQuality
from tuner.measuring.replicas import Replicas

SCHEMA = 1

TrialKind = Literal["baseline", "hypothesis", "search", "confirm"]
Outcome = Literal["completed", "pruned", "duplicate", "failed", "interrupted"]


class TrialRecord(Frozen):
    """One launch and what came of it. Never holds an imputed number.

    `key` names the declared configuration, `effective_key` what the server said it runs with;
    `overridden` is what was asked for and is not so.
    `duplicate_of` is the trial that had the same effective arguments.
    """

    schema_number: int = SCHEMA
    number: int
    kind: TrialKind
    hypothesis: str | None = None
    key: str
    values: dict[str, Value]
    started_at: str
    duration_s: float
    ready_s: float | None = None
    phase_s: dict[str, float] = {}
    command: str
    outcome: Outcome
    rungs: list[RungMeasurement] = []
    quality: OutputQuality = OutputQuality()
    failure: Failure | None = None
    pruned_because: str | None = None
    effective: dict[str, Value] = {}
    overridden: list[Override] = []
    effective_key: str | None = None
    duplicate_of: int | None = None
    facts: EngineFacts = EngineFacts()
    host: str = ""
    gpus: list[str] = []
    replicas: Replicas = Replicas()
    rehearsal: bool = False


class Records:
    """The records of one study folder, in the order in which the launches ended.

    A last line that a crash tore is dropped when the next record is written. Raises RecordsError
    for any other damage and for records of a newer version; both leave the file untouched.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trials.jsonl"
        self._records, self._whole_bytes = _read(self.path)

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def next_number(self) -> int:
        """The number of the next trial; numbers are never given twice."""
        return max((record.number for record in self._records), default=-1) + 1

    def append(self, record: TrialRecord) -> None:
        """Write one record so that it survives a power cut. Raises StudyError where it cannot."""
        line = record.model_dump_json(exclude_defaults=False).encode() + b"\n"
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StudyError(
                f"{self.path}: cannot write the record of trial {record.number}: {error.strerror}",
                hint="All earlier records are whole. Make room or give write access, then run "
                "again: the study continues.",
            ) from error
        self._records.append(record)
        self._whole_bytes += len(line)

    def _write(self, descriptor: int, line: bytes) -> None:
        os.ftruncate(descriptor, self._whole_bytes)  # a torn tail goes, whole lines stay
        written = 0
        try:
            while written < len(line):
                written += os.pwrite(descriptor, line[written:], self._whole_bytes + written)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._whole_bytes)
            raise


def _read(path: Path) -> tuple[list[TrialRecord], int]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise RecordsError(f"{path}: cannot be read: {error.strerror}") from error
    whole = content.rfind(b"\n") + 1
    lines = content[:whole].splitlines()
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1)], whole


def _parse(path: Path, number: int, line: bytes) -> TrialRecord:
    try:
        data = json.loads(line)
        schema = data["schema_number"]
        if schema > SCHEMA:
            raise RecordsError(
                f"{path}:{number}: written by a newer version (schema {schema}, "
                f"this one reads up to {SCHEMA})",
                hint="Use the version that wrote it, or start a new study folder.",
            )
        return TrialRecord.model_validate_json(line)
    except (ValueError, ValidationError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise RecordsError(
            f"{path}:{number}: damaged record: {reason}",
            hint="Nothing was changed. Restore the line from a copy, or remove it: its trial "
            "is then run again.",
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the study for this process alone. Raises StudyBusy, naming the process that has it."""
    path = folder / ".lock"
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        holder = _holder(folder)
        raise StudyBusy(
            f"{folder}: another run holds this study{holder}",
            hint="Wait for it, or stop it with Ctrl-C there; then run again.",
        ) from None
    except OSError as error:
        raise StudyError(
            f"{folder}: cannot be written to: {error.strerror}",
            hint="A study keeps its records beside its file; copy the folder to a place that "
            "you may write to.",
        ) from error
    try:
        (folder / ".lock.pid").write_text(str(os.getpid()))
        yield
    finally:
        (folder / ".lock.pid").unlink(missing_ok=True)
        lock.release()


def _holder(folder: Path) -> str:
    try:
        return f" (process {int((folder / '.lock.pid').read_text())})"
    except (OSError, ValueError):
        return ""
