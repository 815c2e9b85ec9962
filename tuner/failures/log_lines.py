"""Lines of an engine's log: what the process put before the message, and tracebacks as blocks."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_TAGS = r"(?:[A-Z]{2,3}\d+[ ,]*)*"
_PREFIX = re.compile(
    r"""(?:
      \s*\x1b\[[0-9;]*m
    | \[rank(?P<torch>\d+)\]:\s?                                   # torchrun and c10
    | \[[EWIF]\d*\ ?[\d:.]*\ ?\w+\.cpp:?\d*\]\ ?                   # [E ProcessGroupNCCL.cpp:563]
    | \[(?:PG|Rank)\b[^\]]*\]\ ?                                   # [PG ID 2 Rank 3]
    | \((?:[A-Z]\w*?(?:_[DPT]P(?P<vllm>\d+))*(?:_[DP]P\d+)*)(?:\ rank=(?P<old>\d+))?
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


_BATCH = ("Decode batch", "Prefill batch", "generation throughput:")


def condensed(text: str) -> str:
    """A log without the middle of long runs of batch and access lines; their ends stay."""
    lines = text.split("\n")
    kept: list[str] = []
    run: list[str] = []
    batch: str | None = None
    for line in lines:
        if any(word in line for word in _BATCH):
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


def _finds(text: str, word: str, start: int, end: int, limit: int) -> Iterator[int]:
    at = text.find(word, start, end)
    while at >= 0 and limit:
        yield at
        limit -= 1
        newline = text.find("\n", at)
        at = -1 if newline < 0 else text.find(word, newline, end)


def _finds_back(text: str, word: str, start: int, limit: int) -> Iterator[int]:
    at = text.rfind(word, start)
    while at >= 0 and limit:
        yield at
        limit -= 1
        newline = text.rfind("\n", start, at)
        at = -1 if newline < 0 else text.rfind(word, start, newline)


def lines_with(text: str, words: Iterable[str]) -> list[Line]:
    """The lines that hold any of the words, in order; of one that floods, the first and last."""
    starts: set[int] = set()
    for word in words:
        last = -1
        for at in _finds(text, word, 0, len(text), _EDGE):
            last = at
            starts.add(text.rfind("\n", 0, at) + 1)
        if last >= 0:
            starts.update(
                text.rfind("\n", 0, at) + 1 for at in _finds_back(text, word, last, _EDGE)
            )
    return [line_at(text, start) for start in sorted(starts)]


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
