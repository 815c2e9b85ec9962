"""Why a server failed: log + exit + phase → class, first cause, blame, what to do. Pure."""

from typing import Literal

from tuner.frozen import Frozen

Action = Literal["never", "once", "stop-study"]
Phase = Literal["starting", "loading", "capturing", "ready", "serving", "stopping"]


class Failure(Frozen):
    """A failed launch, understood.

    `kind` is a class of the taxonomy, `cause` the line that came first in causal order, `blame`
    the flags or variables it points at, `action` whether the like may be tried again.
    """

    kind: str
    cause: str
    blame: list[str] = []
    action: Action
    advice: str
    phase: Phase
    exit_code: int | None = None
