"""Where answers for people go: a console that takes no text for markup, lines that fit it."""

import sys

from rich.console import Console
from rich.text import Text

from tuner.views.words import plain

WIDE = 160
"""Columns where there is no terminal to ask."""
LINE_CHARS = 150
"""Of a cause, in tables; the whole of it is shown with its trial."""


def terminal(*, stderr: bool = False) -> Console:
    """A console that prints every text as it is: causes come from logs, and may look like markup
    or name an emoji."""
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else WIDE
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def one_line(text: str, chars: int = LINE_CHARS) -> str:
    """The text in a line of at most that many characters, cut with an ellipsis."""
    line = " ".join(plain(text).split())
    return line if len(line) <= chars else f"{line[: chars - 2].rstrip()} …"


def label(rehearsal: bool, time_scale: float | None = None) -> list[Text]:
    """The line above everything that is no benchmark; none for a real engine."""
    if not rehearsal:
        return []
    pace = f", {time_scale:g} surface seconds in one real second" if time_scale else ""
    return [Text(f"REHEARSAL{pace}: numbers in surface time, not a benchmark", style="yellow")]
