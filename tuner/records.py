"""Append-only truth: `trials.jsonl`, one record a line, fsynced."""

import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from tuner.definitions.levels import Level
from tuner.definitions.models import Value
from tuner.definitions.workload import Workload
from tuner.engines.base import EngineFacts
from tuner.engines.overrides import Override
from tuner.errors import RecordsError, StudyError, remedy
from tuner.failures.classifier import Failure
from tuner.frozen import Frozen
from tuner.lock import remedy_beside
from tuner.measuring.fidelity import Continuation, Distance
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.quality import OutputQuality
from tuner.measuring.replicas import Replicas

logger = logging.getLogger(__name__)

SCHEMA = 1

TrialKind = Literal["baseline", "hypothesis", "search", "confirm"]
Outcome = Literal["completed", "pruned", "duplicate", "failed", "interrupted", "invalid"]


def _moment(text: str) -> str:
    # What follows adds to it and takes it to other time zones.
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not 1970 <= moment.year < 9000:
        raise ValueError(f"found {text!r}, expected a date of our time with its time zone")
    return text


class TrialRecord(Frozen):
    """One launch and what came of it. Never holds an imputed number.

    `key` names the declared configuration, `effective_key` what the server said it runs with;
    `overridden` is what was asked for and is not so.
    `rungs` are those whose numbers may be believed, `invalid` the attempts that are void, with what
    speaks against them; the outcome is "invalid" where a rung was void twice, and the ladder ended.
    `duplicate_of` is the trial that had the same effective arguments. `quality_at`
    judges the answers at each level; older records have one `quality` for all of them.
    `continuations` is what the fixed passages were continued with under load; `rescored` is how
    far, by the scores of this launch of the baseline, what trials said is from its own (trial → a
    distance for each level), `not_scored` why it could not score one; `not_compared` why its own
    output could not be had or scored.
    """

    schema_number: int = SCHEMA
    number: int = Field(ge=0)
    kind: TrialKind
    hypothesis: str | None = None
    key: str
    values: dict[str, Value]
    started_at: Annotated[str, AfterValidator(_moment)]
    duration_s: float = Field(ge=0, allow_inf_nan=False)
    ready_s: float | None = None
    phase_s: dict[str, float] = {}
    command: str
    outcome: Outcome
    rungs: list[RungMeasurement] = []
    invalid: list[RungMeasurement] = []
    quality: OutputQuality = OutputQuality()
    quality_at: dict[Level, OutputQuality] = {}
    continuations: list[Continuation] = []
    rescored: dict[int, list[Distance]] = {}
    not_scored: dict[int, str] = {}
    not_compared: str = ""
    failure: Failure | None = None
    pruned_because: str | None = None
    effective: dict[str, Value] = {}
    overridden: list[Override] = []
    effective_key: str | None = None
    duplicate_of: int | None = None
    facts: EngineFacts = EngineFacts()
    workload: Workload | None = None
    host: str = ""
    gpus: list[str] = []
    server_cores: list[int] = []
    client_cores: list[int] = []
    replicas: Replicas = Replicas()
    rehearsal: bool = False

    @property
    def tells(self) -> bool:
        """Whether it says anything of its configuration: neither cut short nor void."""
        return self.outcome not in ("interrupted", "invalid")

    @property
    def void_because(self) -> str:
        """What made its last void attempt worth nothing; empty where there is none."""
        doubts = self.invalid[-1].doubts if self.invalid else []
        return next((f"at {each.at}: {each.said}" for each in doubts if each.voids), "")


class Records:
    """The records of one study folder, in the order in which the launches ended.

    A last line that a crash or a power cut tore is no record: it is warned of, `torn` says so, and
    a copy is kept before anything is written in its place. Raises RecordsError for any other
    damage and for records of a newer version; both leave the file untouched.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trials.jsonl"
        self._copy = folder / "trials.jsonl.torn"
        read = _read(self.path)
        self._records, self._bytes, self._tail = read.records, read.whole_bytes, read.tail
        self._end = b"" if read.ended else b"\n"
        if self._tail:
            logger.warning("%s", self.torn)

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def next_number(self) -> int:
        """The number of the next trial; numbers are never given twice."""
        return max((record.number for record in self._records), default=-1) + 1

    @property
    def torn(self) -> str:
        """What is wrong with the last line, in a sentence; empty where nothing is."""
        if not self._tail:
            return ""
        return (
            f"{self.path}:{len(self._records) + 1}: the last record was cut off while it was "
            f"written; its launch counts as not made, and the next run keeps what is left of it "
            f"in {self._copy.name}"
        )

    def prepare(self) -> None:
        """Make sure that records can be written, before anything is measured.

        Keeps a copy of a torn last line and takes it out. Raises StudyError where it cannot.
        """
        try:
            (self.path.parent / "trials").mkdir(exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._cut_torn(descriptor)
            finally:
                os.close(descriptor)
            sync_folder(self.path.parent)
        except OSError as error:
            raise StudyError(
                f"{error.filename or self.path}: cannot be written: {error.strerror}",
                hint=f"Nothing was started. {remedy_beside(error)}",
            ) from error

    def append(self, record: TrialRecord) -> None:
        """Write one record so that it survives a power cut. Raises StudyError where it cannot."""
        line = self._end + record.model_dump_json(exclude_defaults=False).encode() + b"\n"
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._cut_torn(descriptor)
                self._write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StudyError(
                f"{self.path}: cannot write the record of trial {record.number}: {error.strerror}",
                hint=f"All earlier records are whole. {remedy(error)}, then run again: the study "
                "continues.",
            ) from error
        self._records.append(record)
        self._bytes += len(line)
        self._end = b""

    def _cut_torn(self, descriptor: int) -> None:
        """Copy what a crash left of a line and take it out, unless a stranger wrote meanwhile."""
        size, expected = os.fstat(descriptor).st_size, self._bytes + len(self._tail)
        if size != expected:
            raise StudyError(
                f"{self.path}: has {size} bytes and not the {expected} that this run read and "
                "wrote: something else changed it meanwhile",
                hint="Nothing was written over. Restore it from a copy where lines are missing, "
                "then run again: the study continues where it ends.",
            )
        if self._tail:
            with self._copy.open("ab") as copy:
                copy.write(self._tail + b"\n")
                copy.flush()
                os.fsync(copy.fileno())
            os.ftruncate(descriptor, self._bytes)
            os.fsync(descriptor)
            self._tail = b""

    def _write(self, descriptor: int, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.pwrite(descriptor, line[written:], self._bytes + written)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, self._bytes)
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """What a file holds: its records, the bytes that they take, and what is left of a torn line.

    `ended` is False where the last record is whole but for its line's end.
    """

    records: list[TrialRecord]
    whole_bytes: int
    tail: bytes
    ended: bool


def _read(path: Path) -> _Content:
    content = read_regular(
        path,
        expected="the records of this study",
        hint="Bring them back, or move it away: without it the study begins anew.",
    )
    *lines, tail = content.split(b"\n")
    if lines and b"\0" in lines[-1]:  # a file system may keep a line's length and lose its text
        tail = lines.pop() + b"\n" + tail
    whole = _is_whole(tail)
    if tail and not whole and not _is_torn(tail):
        lines.append(tail)  # nobody was about to write this: let it be refused by its number
    if whole:
        lines.append(tail)
    records = [_parse(path, number, line) for number, line in enumerate(lines, start=1)]
    _refuse_repeated(path, records)
    return _Content(
        records=records,
        whole_bytes=len(content) if whole else len(content) - len(tail),
        tail=b"" if whole else tail,
        ended=not whole,
    )


def read_regular(path: Path, *, expected: str, hint: str) -> bytes:
    """A file's content, nothing where there is none.

    Raises RecordsError where it cannot be read and for all but regular files: a pipe, for one,
    could be read without end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123  (Path cannot open a descriptor)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return file.read()
        found = "is not a regular file"
    except FileNotFoundError:
        if not path.is_symlink():
            return b""
        found = f"is a link to {path.readlink()}, which does not exist"
    except IsADirectoryError:
        found = "is a folder"
    except OSError as error:
        found = f"cannot be read: {error.strerror}"
    raise RecordsError(f"{path}: {found}, expected {expected}", hint=hint)


def _is_torn(tail: bytes) -> bool:
    """True for what an interrupted write can leave: the start of a record, or blocks of zeros."""
    start = tail.lstrip(b"\0")
    return tail.startswith(b"{") or not start or (start != tail and b"\0" in tail)


def _is_whole(tail: bytes) -> bool:
    """True for an object that lacks nothing but the end of its line."""
    try:
        return isinstance(json.loads(tail), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_repeated(path: Path, records: list[TrialRecord]) -> None:
    lines: dict[int, int] = {}
    for line, record in enumerate(records, start=1):
        first = lines.setdefault(record.number, line)
        if first != line:
            raise RecordsError(
                f"{path}:{line}: a second record of trial {record.number}, the first is on line "
                f"{first}",
                hint="Nothing was changed. Numbers are given once: remove the line that is a copy, "
                "or restore the file.",
            )


_RESTORE = (
    "Nothing was changed. Restore the line from a copy, or remove it: its trial is then run again."
)


def _parse(path: Path, number: int, line: bytes) -> TrialRecord:
    where = f"{path}:{number}"
    data = _json(where, line)
    schema = data.get("schema_number")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RecordsError(
            f"{where}: damaged record: expected a schema_number of 1 or more, found "
            f"{json.dumps(schema) if 'schema_number' in data else 'none'}",
            hint=_RESTORE,
        )
    if schema > SCHEMA:
        raise RecordsError(
            f"{where}: written by a newer version (schema {schema}, this one reads up to {SCHEMA})",
            hint="Use the version that wrote it, or start a new study folder.",
        )
    try:
        return TrialRecord.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise RecordsError(
            f"{where}: damaged record: {place}: {first['msg'].removeprefix('Value error, ')}{more}",
            hint=_RESTORE,
        ) from error


def in_json(error: Exception) -> str:
    """What is wrong with a JSON text and where, in few words."""
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}, " if error.lineno > 1 else ""
        return f"{error.msg} at {place}column {error.colno}"
    return str(error)


def _json(where: str, line: bytes) -> dict[str, Any]:
    """The object in a line. Raises RecordsError."""
    try:
        data = json.loads(line)
    except UnicodeDecodeError as error:
        found = f"found the byte 0x{line[error.start]:02x}, expected UTF-8 text"
    except (ValueError, RecursionError) as error:
        found = (
            f"expected JSON ({in_json(error)})" if line.strip() else "expected JSON, found nothing"
        )
    else:
        if isinstance(data, dict):
            return data
        found = f"expected a JSON object, found {type(data).__name__}"
    raise RecordsError(f"{where}: damaged record: {found}", hint=_RESTORE)


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut, where its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
