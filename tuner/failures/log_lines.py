"""Lines of an engine's log: what the process put before the message, and tracebacks as blocks."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

_TAGS = r"(?:[A-Z]{2,3}\d+[ ,]*)*"
_PREFIX = re.compile(
    r"""(?:
      \s*\x1b\[[0-9;]*m
    | \[rank(?P<torch>\d+)\]:\s?                                   # torchrun and c10
    | \[[EWIF]\d*\ ?[\d:.]*\ ?\w+\.cpp:?\d*\]\ ?                   # [E ProcessGroupNCCL.cpp:563]
    | \[(?:PG|Rank)\b[^\]]*\]\ ?                                   # [PG ID 2 Rank 3]
    | \((?:[A-Z][\w-]*?(?:_[DPT]P(?P<vllm>\d+))*(?:_[DP]P\d+)*)(?:\ rank=(?P<old>\d+))?
        (?:\ pid=\d+)?\)\ ?                                        # (Worker_TP1 pid=12)
    | \[?(?:T|\d{4}-\d\d-\d\d|\d\d-\d\d|\d\d/\d\d/\d{4})?[\ T-]?
        (?:\d\d:\d\d:\d\d(?:[.,]\d+)?)?
        \ ?(?P<sglang>"""
    + _TAGS
    + r""")\]\ ?                     # [2026-01-01 10:00:00 DP1 TP1]
    | \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d,\d+\ -\ [A-Z]+\ -\ [\w.]+:\d+\ -\ (?:[\w.]+:\ )?
    | (?:INFO|WARNING|ERROR|DEBUG|CRITICAL|FATAL)\ \d\d-\d\d\ \d\d:\d\d:\d\d(?:\.\d+)?[ ]
        (?:\[?[\w./]+:\d+\]?)?\ ?                       # ERROR 03-05 09:56:09 [core.py:9]
    | (?:INFO|WARNING|ERROR|DEBUG|CRITICAL|FATAL)(?:\ \[[\w.]+(?::\d+)?\]|:\ {2,})\ ?
    | \[[\w.-]+\.py:\d+\]\ ?
    )+""",
    re.VERBOSE,
)
_RANK = re.compile(r"TP(\d+)")
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_BLOCK_LINES = 400
_EDGE = 200
"""How many finds of one word are looked at from either end of a log."""


def condensed(text: str) -> str:
    """A log without the middle of long runs of batch and access lines; their ends stay."""
    lines = text.split("\n")
    kept: list[str] = []
    run: list[str] = []
    batch: str | None = None
    for line in lines:
        if "Decode batch" in line or "Prefill batch" in line or "generation throughput:" in line:
            batch = line
        elif '" 200' not in line:
            kept += _ends(run, batch)
            kept.append(line)
            run, batch = [], None
            continue
        run.append(line)
    return "\n".join(kept + _ends(run, batch))


def _ends(run: list[str], batch: str | None) -> list[str]:
    if len(run) <= 3:
        return run
    return [run[0], *([batch] if batch is not None else []), run[-1]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its prefix; `rank` is the tensor-parallel rank that the prefix names."""

    start: int
    end: int
    rank: int | None
    body: str
    prefixed: bool


def split_prefix(line: str) -> tuple[int | None, str, bool]:
    """The rank that wrote a line, its message, and whether the message had a prefix at all."""
    match = _PREFIX.match(line)
    if match is None or not match.group().strip():
        return None, line.rstrip(), False
    tag = match["torch"] or match["old"] or match["vllm"]
    if tag is None and match["sglang"]:
        found = _RANK.search(match["sglang"])
        tag = found[1] if found else None
    return (int(tag) if tag else None), line[match.end() :].rstrip(), True


def line_at(text: str, offset: int) -> Line:
    """The line around an offset."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    rank, body, prefixed = split_prefix(text[start:end])
    return Line(start, end, rank, body, prefixed)


def previous_line(text: str, line: Line) -> Line | None:
    """The line above, or None at the top."""
    return line_at(text, line.start - 1) if line.start > 0 else None


def next_line(text: str, line: Line) -> Line | None:
    """The line below, or None at the bottom."""
    return line_at(text, line.end + 1) if line.end + 1 < len(text) else None


class Lines:
    """The lines of a text, to be found by words.

    Lines that differ in digits and lower-case hexadecimal letters only are looked at as one: a
    long log says few things, with other times, counts and ids.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        shapes = _shape(text).split(b"\n")
        starts = accumulate((len(line) + 1 for line in text.split("\n")), initial=0)
        self._places: dict[bytes, list[int]] = {}
        for shape, start in zip(shapes, starts, strict=False):
            self._places.setdefault(shape, []).append(start)
        self._shapes = b"\n".join(self._places)

    def having(self, words: Iterable[str]) -> list[Line]:
        """The lines that hold any of the words, in order; of one that floods, the first and
        last."""
        starts: set[int] = set()
        for word in words:
            found = sorted(self._starts(word))
            starts.update(found[:_EDGE], found[-_EDGE:])
        return [line_at(self._text, start) for start in sorted(starts)]

    def _starts(self, word: str) -> Iterator[int]:
        text, wanted = self._text, _shape(word)
        at = self._shapes.find(wanted)
        while at >= 0:
            begin, end = self._shapes.rfind(b"\n", 0, at) + 1, self._shapes.find(b"\n", at)
            for start in self._places[self._shapes[begin : end if end >= 0 else None]]:
                newline = text.find("\n", start)
                if text.find(word, start, newline if newline >= 0 else len(text)) >= 0:
                    yield start
            at = self._shapes.find(wanted, end + 1) if end >= 0 else -1


def _shape(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, b"0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Block:
    """A traceback or message of several lines, from its header to the line that was found."""

    rank: int | None
    text: str


def _continues(line: Line) -> bool:
    body = line.body
    return (
        not body.strip()
        or body[0] in " \t"
        or body.startswith(("Traceback (most recent", *_CHAINED))
    )


def block_above(text: str, line: Line) -> Block:
    """What belongs to a line from above: frames, the chained exceptions, the tagged header."""
    rank, bodies, above = line.rank, [line.body], previous_line(text, line)
    for _ in range(_BLOCK_LINES):
        if above is None:
            break
        if not _continues(above) and "Traceback (most recent" not in above.body:
            nearer = previous_line(text, above)
            chained = bodies[-1].startswith(_CHAINED) or not bodies[-1].strip()
            if not (chained and nearer is not None):
                bodies.append(above.body)
                rank = above.rank if rank is None and above.body.endswith(":") else rank
                break
        bodies.append(above.body)
        if rank is None:
            rank = above.rank
        if above.prefixed and not line.prefixed:
            break
        above = previous_line(text, above)
    return Block(rank, "\n".join(reversed(bodies)))
