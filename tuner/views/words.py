"""How values, reasons and names are worded wherever something is written for people. Pure."""

import re
from collections.abc import Mapping

from tuner.definitions.models import Value

REHEARSED = "REHEARSAL: nothing behind this was measured on hardware."

SIGN = "~"
"""Behind a number that one server gave in the place of several."""
LEGEND = (
    f"{SIGN} extrapolated: one server was launched and counts for all that the host holds."
    " No such number wins: finalists run as full sets."
)

PER_USER = (
    "tok/s a user: how fast an answer streams once it has begun, its tokens after the first event"
    " over the time they took. The wait for that event is not in it; output tok/s over streams has"
    " it."
)

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
NAME_CHARS = 40
"""Of a name that has to be a label of a host, with room for what is put behind it."""


def unit_of(scored: str) -> str:
    """What a score's throughput is counted in."""
    return "req/s" if scored == "goodput" else "tok/s"


def scored_words(scored: str) -> str:
    """What an objective scores."""
    if scored == "goodput":
        return "requests per second that kept every latency limit"
    return f"{scored} tokens per second"


def plain(text: str) -> str:
    """The text without what a terminal would obey: colours, cursor movements, line ends."""
    without = _ESCAPE.sub("", text)
    return "".join(c if c.isprintable() else " " for c in without)


def spelt(value: Value) -> str:
    """A value as one would type it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def number(value: float) -> str:
    """Four digits that count, never an exponent."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def said_changes(changed: Mapping[str, Value]) -> str:
    """`ep-size=8, cuda-graph unset`, or that nothing differs from the baseline."""
    words = [
        f"{name} unset" if value is None else f"{name}={spelt(value)}"
        for name, value in changed.items()
    ]
    return plain(", ".join(words)) or "the baseline"


def winner_words(changed: Mapping[str, Value], servers: int) -> str:
    """What won, and how many servers of it the host holds."""
    several = f", {servers} servers on the host" if servers > 1 else ""
    return f"Winner: {said_changes(changed)}{several}"


def ran_words(ran_at: Mapping[float, float]) -> str:
    """Where the engine ran fewer requests at a time than there were streams."""
    return ", ".join(
        f"of {streams:g} {'stream' if streams == 1 else 'streams'} the engine ran"
        f" {number(mean)} at a time"
        for streams, mean in ran_at.items()
    )


def so_far(unfinished: str, sentence: str) -> str:
    """A verdict behind how far its study is; alone where the study came to its end."""
    return f"{unfinished} So far {sentence[:1].lower()}{sentence[1:]}" if unfinished else sentence


def changed_words(how: str) -> str:
    """That a study is no longer the one that its records were made by."""
    return f"CHANGED: {how}: judged anew here, and no run will continue it"


def comment(text: str) -> str:
    """The text as one line behind `#`: it may quote a log, of which no line may get out, and no
    backslash may take the next line in."""
    return f"# {' '.join(plain(text).split())}".rstrip("\\ ") + "\n"


def host_label(name: str) -> str:
    """The name as hosts and clusters allow it: lower case letters, digits and dashes."""
    return _NOT_IN_A_NAME.sub("-", name.lower()).strip("-")[:NAME_CHARS].strip("-") or "serving"
