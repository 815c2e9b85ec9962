"""What an engine warns of while it starts, out of its log."""

import re

from tuner.flags.masking import masked

_MOST = 50
_LONGEST = 300
_WARNING = re.compile(
    r"\bWARN(?:ING)?\b[^\]\n]{0,80}\] ?(?P<logged>[^\n]+)"  # WARNING 12-01 10:00:00 [file.py:7] ...
    r"|^\[[^\]\n]{0,80}\] (?:WARNING: ?|Warning: ?)(?P<said>[^\n]+)"  # [2026-01-01 10:00:00] ...
    r"|\b[A-Z]\w*Warning: (?P<raised>[^\n]+)",
    re.MULTILINE,
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def warnings_of(log: str) -> list[str]:
    """Each warning of a log once, in its order, without secrets and what stands before it."""
    found: dict[str, str] = {}
    for match in _WARNING.finditer(log):
        text = masked(next(filter(None, match.groups())).strip())[:_LONGEST]
        found.setdefault(like(text), text)
    return list(found.values())[:_MOST]


def like(warning: str) -> str:
    """The warning as it reads in another launch, whose numbers are others."""
    return _NUMBER.sub("0", warning)
