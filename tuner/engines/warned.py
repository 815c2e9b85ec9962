"""What an engine warns of while it starts, as far as its log marks it as a warning."""

import re
from collections.abc import Iterator

from tuner.flags.masking import masked

_MOST = 50
_LONGEST = 300
_COMPARED = 200
_FORMS = re.compile(
    r"(?P<prefix>"
    r"(?:\([^)\n]*\) ?)?WARNING \S+ \S+ \[[^\]\n]+\] ?"  # vLLM: (Worker pid=7) WARNING 12-01 ...
    r"|[^\n]{0,80}? - WARNING - (?:[\w.]+:\d+ - )?"
    r"|\[20[^\]\n]{0,60}\] (?i:warning): ?"  # SGLang writes no level: only where the text says so
    r"|(?:\[rank\d+\]:)?\[W\d{4}[^\]\n]*\] (?:Warning: )?"  # torch
    r"|[^\n]{0,200}?\b[A-Z]\w*Warning: "  # Python
    r")(?P<text>[^\n]*)"
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def warnings_of(log: str) -> list[str]:
    """Each warning of a log once, the first line of it, in its order and without secrets; at most
    50. SGLang writes no levels: of its own those alone that begin with the word."""
    found: dict[str, str] = {}
    for text in _first_lines(log):
        if len(found) == _MOST:
            break
        found.setdefault(like(text), text)
    return [masked(text)[:_LONGEST] for text in found.values()]


def like(warning: str) -> str:
    """The warning as it reads in another launch, whose numbers are others."""
    return _NUMBER.sub("0", warning)[:_COMPARED]


def _first_lines(log: str) -> Iterator[str]:
    """What follows on a line that says where it comes from is, by the same words, one message."""
    before = ""
    for line in log.splitlines():
        match = _FORMS.match(line)
        prefix = match["prefix"].rstrip() if match else ""
        if match and prefix != before and match["text"].strip():
            yield match["text"].strip()
        before = prefix
