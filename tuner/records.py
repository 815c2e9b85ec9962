"""Append-only truth: `trials.jsonl`, one record a line, fsynced; and the lock on a study."""

from typing import Literal

from tuner.definitions import Value
from tuner.engines.base import EngineFacts
from tuner.failures import Failure
from tuner.frozen import Frozen
from tuner.measurement import RungMeasurement

SCHEMA = 1

TrialKind = Literal["baseline", "hypothesis", "search", "confirm"]
Outcome = Literal["completed", "pruned", "duplicate", "failed", "interrupted"]


class TrialRecord(Frozen):
    """One launch and what came of it. Never holds an imputed number.

    `key` names the declared configuration, `effective_key` what the server said it runs with.
    `duplicate_of` is the trial that had the same effective arguments.
    """

    schema_number: int = SCHEMA
    number: int
    kind: TrialKind
    hypothesis: str | None = None
    key: str
    values: dict[str, Value]
    started_at: str
    duration_s: float
    ready_s: float | None = None
    phase_s: dict[str, float] = {}
    command: str
    outcome: Outcome
    rungs: list[RungMeasurement] = []
    failure: Failure | None = None
    pruned_because: str | None = None
    effective: dict[str, Value] = {}
    effective_key: str | None = None
    duplicate_of: int | None = None
    facts: EngineFacts = EngineFacts()
    host: str = ""
    gpus: list[str] = []
    rehearsal: bool = False
