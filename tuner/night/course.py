"""What a launch is asked, what is told of it on the way, and what is known of it so far."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import Field

from tuner.definitions.levels import Level
from tuner.definitions.models import Objective, Value
from tuner.definitions.workload import Workload
from tuner.engines.base import Engine, EngineFacts, LaunchSpec
from tuner.engines.overrides import Override
from tuner.failures.classifier import Failure
from tuner.frozen import Frozen
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.measuring.fidelity import Continuation, Distance
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.quality import OutputQuality
from tuner.measuring.replicas import Replicas
from tuner.night.watch import Watch
from tuner.observers.observer import Observer, Seen
from tuner.records import Outcome, TrialKind


class TrialOrder(Frozen):
    """What to launch and how to judge it on the way.

    `reference` holds the baseline's tok/s per rung and `noise` the relative sd of a launch there,
    both empty while they are not known; `best` is the best score so far, `ceilings` the best ratio
    seen at each rung; `known` maps effective keys to the trial that has them, `dead` are arguments
    that count in none of them since nothing reads them. `nearest` holds flags
    and variables of the most similar configuration that served: blame starts from what differs.
    `gpus` are what all its servers take together, `host_gpus` what the host has (None: as many).
    `to_rescore` holds what earlier trials said and no launch of the baseline has scored yet.
    """

    number: int
    kind: TrialKind
    hypothesis: str | None = None
    key: str
    values: dict[str, Value]
    launch: LaunchSpec
    gpus: int
    host_gpus: int | None = None
    replicas: Replicas = Replicas()
    objective: Objective
    lengths: tuple[tuple[int, int], ...]
    texts: tuple[str, ...] = Field(default=(), repr=False)
    offsets_s: tuple[float, ...] = Field(default=(), repr=False)
    workload: Workload | None = None
    prune: bool = False
    reference: dict[Level, float] = {}
    noise: dict[Level, float] = {}
    best: float = 1.0
    ceilings: dict[Level, float] = {}
    dead: list[str] = []
    known: dict[str, int] = {}
    baseline_quality: dict[Level, OutputQuality] = {}
    nearest: dict[str, Value] = {}
    to_rescore: dict[int, list[Continuation]] = {}


class TrialNote(Frozen):
    """Where a trial is: starting, rung, stopping; `at` is that rung as people say it, `again` where
    it is measured for the second time, with its numbers once it is done, void ones too."""

    number: int
    phase: str
    at: str | None = None
    again: bool = False
    rung: RungMeasurement | None = None


@dataclass(slots=True)
class Course:
    """What is known of the trial so far; becomes its record."""

    outcome: Outcome = "completed"
    rungs: list[RungMeasurement] = field(default_factory=list)
    invalid: list[RungMeasurement] = field(default_factory=list)
    quality_at: dict[float, OutputQuality] = field(default_factory=dict)
    continuations: list[Continuation] = field(default_factory=list)
    rescored: dict[int, list[Distance]] = field(default_factory=dict)
    not_scored: dict[int, str] = field(default_factory=dict)
    not_compared: str = ""
    failure: Failure | None = None
    pruned_because: str | None = None
    effective: dict[str, Value] = field(default_factory=dict)
    overridden: list[Override] = field(default_factory=list)
    effective_key: str | None = None
    duplicate_of: int | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    phase_s: dict[str, float] = field(default_factory=dict)
    flush: str | None = None
    seen: Seen | None = None
    serving: bool = False
    start_s: float = 0.0
    heard: str = ""
    stalled: str = ""
    failed_replica: int | None = None
    rehearsal: bool = False
    command: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    begun: float = field(default_factory=time.perf_counter)

    def lost(self, watch: Watch) -> None:
        """A server died, or was given up."""
        self.outcome = "failed"
        self.failed_replica = watch.failed
        self.heard, self.stalled = watch.heard, watch.stalled

    def silent(self, place: int, why: str) -> None:
        """A server that lives gives no token, window after window."""
        self.outcome = "failed"
        self.failed_replica, self.stalled = place, why


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The servers of a launch and what speaks to each."""

    engine: Engine
    servers: Sequence[Server]
    https: Sequence[Http]
    watch: Watch
    observer: Observer
