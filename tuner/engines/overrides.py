"""What was asked for and is not what the server runs with, and by whose word. Pure."""

import re
from collections.abc import Iterator, Mapping

from tuner.definitions.models import Value
from tuner.flags.names import canonical
from tuner.flags.secrets import HIDDEN
from tuner.frozen import Frozen

_LONGEST_LINE = 400
"""A longer line is a dump of arguments, which names every flag."""
_CHANGES = re.compile(
    r"\b(?:adjust|overrid|chang|forc|ignor|disabl|enabl|turn|reset|fall|clamp|rescal|set)\w*"
    r"|\b(?:instead|same as|not supported)\b",
    re.IGNORECASE,
)
_LEFT_TO_ENGINE = frozenset({"auto", "default"})
_BETWEEN_WORDS = re.compile(r"[^a-z0-9.]+")
LEAST_MENTIONS = 2
"""So many of a flag's own words (its value counts) make a line speak of it: one is chance."""


class Override(Frozen):
    """One flag that the engine changed: what was asked, what it runs with, the flags that the log
    names as the reason (none where it does not say), and the line that does."""

    flag: str
    asked: Value
    runs_with: Value
    by: list[str] = []
    line: str = ""

    def __str__(self) -> str:
        reason = f": overridden by {' and '.join(self.by)}" if self.by else ""
        return f"{self.flag} was set to {self.asked} and runs with {self.runs_with}{reason}"


def overrides(
    asked: Mapping[str, Value],
    effective: Mapping[str, Value],
    log: str,
    aliases: Mapping[str, tuple[str, ...]],
) -> list[Override]:
    """The flags that were set and are otherwise in the arguments read back, in their order.

    `aliases` holds other names of a flag, under each of which a log may speak of it. What was left
    to the engine (`auto`) is decided, not overridden.
    """
    own = {name: canonical(own) for own, names in aliases.items() for name in names}
    settled = {own.get(canonical(n), canonical(n)): value for n, value in asked.items()}
    changed = [
        flag
        for flag, value in settled.items()
        if flag in effective and value is not None and not _alike(value, effective[flag])
    ]
    lines = list(_telling_lines(log)) if changed else []
    found = []
    for flag in changed:
        line, by = _reason(flag, settled, lines, aliases)
        found.append(
            Override(
                flag=flag, asked=settled[flag], runs_with=effective[flag], by=by, line=line.strip()
            )
        )
    return found


def _alike(asked: Value, runs_with: Value) -> bool:
    if str(asked).lower() in _LEFT_TO_ENGINE or runs_with in (HIDDEN, asked):
        return True
    try:
        return float(str(asked)) == float(str(runs_with))
    except ValueError:
        return str(asked).lower() == str(runs_with).lower()


def _telling_lines(log: str) -> Iterator[str]:
    for line in log.splitlines():
        if len(line) <= _LONGEST_LINE and _CHANGES.search(line):
            yield line


def _reason(
    flag: str,
    asked: Mapping[str, Value],
    lines: list[str],
    aliases: Mapping[str, tuple[str, ...]],
) -> tuple[str, list[str]]:
    """The line that speaks of the flag and of others that were set, and those others.

    What stands before it is the cause (`X is enabled, Y is set to the same as Z`); what follows
    only where nothing does (`Y is off because of X`).
    """
    best: tuple[str, list[str]] = ("", [])
    for line in lines:
        said = _plain(line)
        at = _place(flag, said, aliases)
        if at is None:
            continue
        others = {name: value for name, value in asked.items() if name != flag and value}
        before = _mentioned(others, said[:at], aliases)
        by = before or _mentioned(others, said[at:], aliases)
        if by:
            return line, by
        best = best if best[0] else (line, [])
    return best


def _place(flag: str, said: str, aliases: Mapping[str, tuple[str, ...]]) -> int | None:
    """Where a line names the flag by one of its names, None where it does not."""
    names = (_plain(name) for name in (flag, *aliases.get(flag, ())))
    places = [at for name in names if (at := f" {said} ".find(f" {name} ")) >= 0]
    return min(places, default=None)


def _mentioned(
    flags: Mapping[str, Value], said: str, aliases: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """The flags that are spoken of most; none where no more than chance."""
    words = set(said.split())
    scores = {
        flag: max(
            len(words & {*_plain(name).split(), str(value).lower()})
            for name in (flag, *aliases.get(flag, ()))
        )
        for flag, value in flags.items()
    }
    most = max(scores.values(), default=0)
    return [flag for flag, score in scores.items() if score == most >= LEAST_MENTIONS]


def _plain(text: str) -> str:
    return _BETWEEN_WORDS.sub(" ", text.lower()).strip()
