"""What is asked of a host before a night, and the form of an answer."""

from collections.abc import Callable
from typing import Literal

from tuner.frozen import Frozen
from tuner.hosts.inspection import Inspected

State = Literal["ok", "warn", "fail", "unknown"]


class Check(Frozen):
    """One question before a night: what was found, and the command or edit that mends it."""

    name: str
    state: State
    found: str
    mend: str = ""


class Needs(Frozen):
    """What a study asks of its host; without a study nothing is asked for by number.

    `real_gpus` is False for a rehearsal, which has none. `cuda` is the CUDA that the engine was
    built for, where it says.
    """

    gpus: int | None = None
    real_gpus: bool = True
    concurrency: int | None = None
    cuda: tuple[int, int] | None = None


Question = Callable[[Inspected, Needs], list[Check]]
