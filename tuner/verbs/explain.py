"""Why a server failed, from its log alone: also one that nobody here ever launched."""

import re
import sys
import zlib
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from pydantic import Field

from tuner.definitions.nearest import did_you_mean
from tuner.definitions.paths import STUDY_FILE
from tuner.errors import TunerError
from tuner.failures.classifier import Action, Phase, located, phase_of
from tuner.flags.masking import masked
from tuner.frozen import Frozen

EngineName = Literal["sglang", "vllm", "rehearsal"]
PHASES: tuple[Phase, ...] = get_args(Phase)
HEALTHY = "none"
"""The class of a log that shows no failure."""

STDIN = "-"
_UNKNOWN = "unknown"
_LIMIT_BYTES = 256_000_000
_ABOVE, _BELOW = 3, 3
_LINE_CHARS = 500
_OF_SGLANG = re.compile(
    r"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]{2}\d+)*\] \S"
    r"|File \"[^\"\n]*/sglang/|server_args=ServerArgs\(|No module named '?sglang\b"
    r"|^(?:usage: )?(?:launch_server\.py|sglang serve)\b",
    re.MULTILINE,
)
_OF_VLLM = re.compile(
    r"\b(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \["
    r"|\((?:EngineCore|APIServer|Worker)\w* pid=\d+\)"
    r"|File \"[^\"\n]*/vllm/|No module named '?vllm\b"
    r"|^(?:usage: )?(?:api_server\.py|vllm serve): ?|^(?:usage: )vllm serve\b",
    re.MULTILINE,
)
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT = 65_536
_ODD_SHARE = 0.05
"""Of the first characters: no log has so many that are no text."""


class NumberedLine(Frozen):
    """A line of the log by its number, the first being 1."""

    number: int
    text: str


class Explanation(Frozen):
    """What a log says of its server's end.

    `kind` is a class of failure, "none" where nothing failed: cause, line, action and advice are
    then None. `line` is where the cause stands, `context` the lines around it; of a healthy log
    they are the last ones. `phase` is how far the server had come. `engine` is None where neither
    the log nor anybody says which it is, `phase` where it then shows no failure either. `guessed`
    says that the engine was told from the log, `cut_off` that the packed file lacks its end.
    """

    schema_number: int = 1
    log: str
    engine: str | None
    guessed: bool
    cut_off: bool = False
    kind: str = Field(serialization_alias="class")
    cause: str | None
    line: int | None
    blame: list[str]
    action: Action | None
    advice: str | None
    phase: Phase | None
    exit_code: int | None
    context: list[NumberedLine]


def explain(
    source: str,
    *,
    engine: EngineName | None = None,
    exit_code: int | None = None,
    phase: Phase | None = None,
) -> Explanation:
    """The first cause that a log shows; `source` is a file, packed by gzip or not, or "-".

    `exit_code` says that the server ended by itself with that code. Raises TunerError for what is
    no log.
    """
    shown = "standard input" if source == STDIN else source
    content, cut_off = _content(source)
    log = _text(content, shown)
    # Progress bars return without a new line: a line for the reader, none for an editor.
    read = log.replace("\r", "\n")
    chosen = engine or guessed_engine(read)
    spoken = chosen or _UNKNOWN
    failure, at = located(read, engine=spoken, exit_code=exit_code, phase=phase)
    reached = phase_of(read, spoken) if chosen else None
    line = None if at is None else log.count("\n", 0, at) + 1
    return Explanation(
        log=shown,
        engine=chosen,
        guessed=engine is None and chosen is not None,
        cut_off=cut_off,
        kind=failure.kind if failure else HEALTHY,
        cause=masked(failure.cause) if failure else None,
        line=line,
        blame=failure.blame if failure else [],
        action=failure.action if failure else None,
        advice=failure.advice if failure else None,
        phase=failure.phase if failure else phase or reached,
        exit_code=exit_code,
        context=_context(log, line),
    )


def guessed_engine(log: str) -> EngineName | None:
    """Whose log it is, by what only that engine prints; None where nothing of the kind is there."""
    if "] REHEARSAL of SGLang" in log:
        return "rehearsal"
    sglang, vllm = (sum(1 for _ in marks.finditer(log)) for marks in (_OF_SGLANG, _OF_VLLM))
    if not sglang and not vllm:
        return None
    return "vllm" if vllm > sglang else "sglang"


def _context(log: str, line: int | None) -> list[NumberedLine]:
    lines = log.rstrip("\n").split("\n")
    first = max(0, len(lines) - _ABOVE) if line is None else max(0, line - 1 - _ABOVE)
    last = len(lines) if line is None else line + _BELOW
    return [
        NumberedLine(number=first + index + 1, text=masked(text.rpartition("\r")[2])[:_LINE_CHARS])
        for index, text in enumerate(lines[first:last])
    ]


def _content(source: str) -> tuple[bytes, bool]:
    """What was read, unpacked, and whether its end is missing."""
    try:
        if source == STDIN:
            return _unpacked(sys.stdin.buffer, "standard input")
        with Path(source).open("rb") as file:
            return _unpacked(file, source)
    except FileNotFoundError as error:
        raise TunerError(f"{source}: no such file{_near(Path(source))}") from error
    except IsADirectoryError as error:
        raise TunerError(
            f"{source}: a folder, expected the log of a server", hint=_inside(Path(source))
        ) from error
    except OSError as error:
        raise TunerError(f"{source}: cannot be read: {error.strerror or error}") from error


def _unpacked(file: BinaryIO, shown: str) -> tuple[bytes, bool]:
    content, cut_off = file.read(_LIMIT_BYTES + 1), False
    if content.startswith(_GZIP):
        content, cut_off = _gunzipped(content, shown)
    if len(content) > _LIMIT_BYTES:
        raise TunerError(
            f"{shown}: more than {_LIMIT_BYTES / 1e6:.0f} MB, expected the log of one server",
            hint="Give the part that matters: tail -c 100M LOG | tuner explain -",
        )
    return content, cut_off


def _gunzipped(content: bytes, shown: str) -> tuple[bytes, bool]:
    """What could be unpacked, and whether the end is missing: it was still being written."""
    found, cut_off = b"", False
    try:
        while content.startswith(_GZIP) and len(found) <= _LIMIT_BYTES:
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            found += unpacker.decompress(content, _LIMIT_BYTES + 1)
            content, cut_off = unpacker.unused_data, not unpacker.eof
        return found, cut_off
    except zlib.error as error:
        raise TunerError(
            f"{shown}: packed by gzip and damaged: {error}", hint="Unpack what is left of it first."
        ) from error


def _text(content: bytes, shown: str) -> str:
    content = content.lstrip(b"\0")  # where a log is emptied while its server writes on
    if not content.strip():
        raise TunerError(
            f"{shown}: empty",
            hint="Say how the server ended where it printed nothing: its exit code, and the "
            "kernel's log (dmesg -T) for what killed it.",
        )
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8"
    text = content.decode(encoding, errors="replace").replace("\r\n", "\n")
    head = text[:_LOOKED_AT]
    odd = sum((not c.isprintable() and c not in "\t\n\r\x1b") or c == "\ufffd" for c in head)
    if odd > _ODD_SHARE * len(head):
        raise TunerError(
            f"{shown}: not a text: {odd / len(head):.0%} of its characters are none",
            hint="Give what the server printed: its standard output and standard error.",
        )
    return text


def _near(path: Path) -> str:
    try:
        names = [child.name for child in path.parent.iterdir()]
    except OSError:
        return ""
    return did_you_mean(path.name, names)


def _inside(folder: Path) -> str:
    log = folder / "server.log"
    if log.is_file():
        return f"Give the log in it: tuner explain {log}"
    if (folder / STUDY_FILE).is_file():
        return f"Give the log of a trial: {folder}/trials/NNNN/server.log"
    return "Give the file that the server's output went to."
