"""The engine's log: its lines, in its words, on standard output."""

import sys
from collections.abc import Mapping
from datetime import datetime

from tuner.definitions.models import Value
from tuner.flags.sglang import FLAGS


def stamp() -> str:
    """The time as the engine writes it."""
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")


def say(text: str, *, rank: int | None = None) -> None:
    """One line with the engine's time stamp, and the rank that says it."""
    who = "" if rank is None else f" TP{rank}"
    raw(f"[{stamp()}{who}] {text}")


def raw(text: str) -> None:
    """Text as it is; `{time}` becomes the time."""
    sys.stdout.write(text.rstrip("\n").replace("{time}", stamp()) + "\n")
    sys.stdout.flush()


def server_args(arguments: Mapping[str, Value]) -> str:
    """The resolved arguments in one line, as the engine prints them."""
    pairs = (f"{FLAGS[name].dest}={value!r}" for name, value in arguments.items())
    return f"server_args=ServerArgs({', '.join(pairs)})"
