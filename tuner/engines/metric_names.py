"""How an engine calls what it counts of itself, in its metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNames:
    """Of alternatives, which versions have called differently, the first that is there counts.

    `running`, `queued` and `kv_usage` (a share) are of the moment; `preempted` counts requests,
    `looked_up` tokens of prompts and `found` those of them that the prefix cache knew, all since
    the server's start.
    """

    running: str
    queued: str
    kv_usage: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    looked_up: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
