"""A night without machines: an executor whose trials come from a function, not from servers."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.samples import OBJECTIVE, record
from tuner.definitions.models import SpaceDefinition, StudyDefinition
from tuner.definitions.space import Space
from tuner.definitions.validation import LoadedStudy
from tuner.hosts.executor import Event, Function, HostInfo, JobDone, JobLost
from tuner.night.course import TrialOrder
from tuner.records import TrialRecord

SPACE: dict[str, Any] = {
    "parameters": {
        "graphs": {"type": "bool"},
        "chunk": {"type": "choice", "choices": [1, 2, 4], "default": 1},
        "seats": {"type": "choice", "choices": [8, 16], "default": 8},
    },
    "hypotheses": [
        {"id": "slow", "change": {"chunk": 4}, "claim": "c", "gain_percent": [1, 2], "tier": 2},
        {"id": "graphs", "change": {"graphs": True}, "claim": "g", "gain_percent": [10, 20]},
        {
            "id": "more-graphs",
            "change": {"seats": 16},
            "claim": "m",
            "gain_percent": [20, 40],
            "depends_on": ["graphs"],
        },
    ],
}
HOST = HostInfo(
    name="here",
    gpus=("0",),
    gpu_model=None,
    real_gpus=False,
    cpu_model="a cpu",
    cores=2,
    memory_gb=8.0,
)


def space(**changes: Any) -> Space:
    """The space above, with changes."""
    return Space(SpaceDefinition.model_validate_json(json.dumps({**SPACE, **changes})))


def study(folder: Path, budget: dict[str, Any], **changes: Any) -> LoadedStudy:
    """A study of vLLM over that space, none of whose files exist."""
    definition = StudyDefinition.model_validate_json(
        json.dumps(
            {
                "engine": {"name": "vllm", "python": "python3"},
                "model": "m",
                "space": "space.yaml",
                "objective": "objective.yaml",
                "budget": budget,
                **changes,
            }
        )
    )
    searched = space()
    return LoadedStudy(
        folder=folder,
        definition=definition,
        space=searched,
        objective=OBJECTIVE,
        baseline=searched.configuration({}),
        lengths=((64, 64),),
    )


class SimulatedExecutor:
    """One host on which every trial ends at once, as `outcome(order)` says.

    An outcome is a TrialRecord, or a text for a trial that is lost.
    """

    def __init__(self, outcome: Callable[[TrialOrder], TrialRecord | str]) -> None:
        self.orders: list[TrialOrder] = []
        self.cancelled: list[int] = []
        self._outcome = outcome
        self._events: list[Event] = []
        self._numbers = itertools.count()

    @property
    def hosts(self) -> tuple[HostInfo, ...]:
        return (HOST,)

    def submit(self, function: Function, payload: Any, *, gpus: int, folder: Path) -> int | None:
        job = next(self._numbers)
        self.orders.append(payload)
        result = self._outcome(payload)
        if isinstance(result, str):
            self._events.append(JobLost(job=job, reason=result))
        else:
            self._events.append(JobDone(job=job, result=result))
        return job

    def poll(self, timeout_s: float) -> list[Event]:
        events, self._events = self._events, []
        return events

    def cancel(self, job: int) -> None:
        self.cancelled.append(job)

    def close(self) -> None:
        pass


def completed(order: TrialOrder, gain: float, noise: float = 0.0, **changes: Any) -> TrialRecord:
    """That order's launch, at `gain` times the baseline on every rung."""
    factor = gain * (1 + noise)
    return record(
        order.number,
        order.kind,
        key=order.key,
        values=order.values,
        hypothesis=order.hypothesis,
        rates={1: 100.0 * factor, 16: 1000.0 * factor},
        **changes,
    )


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, str, str | None]] = []
        self.reasons: list[str] = []
        self.prepared: list[str] = []
        self.records: list[TrialRecord] = []

    def preparing(self, what: str) -> None:
        self.prepared.append(what)

    def started(self, job: Any, order: TrialOrder) -> None:
        self.jobs.append((job.phase, job.kind, job.hypothesis))
        self.reasons.append(job.reason)

    def note(self, note: Any) -> None:
        pass

    def ended(self, record: TrialRecord, records: Sequence[TrialRecord]) -> None:
        self.records.append(record)

    def tick(self, clock: Any) -> None:
        pass


def completed_as(number: int, job: Any, configuration: Any, gain: float) -> TrialRecord:
    """That job's launch of this configuration, at `gain` times the baseline on every rung."""
    return record(
        number,
        job.kind,
        key=configuration.key,
        values=configuration.as_dict(),
        hypothesis=job.hypothesis,
        rates={1: 100.0 * gain, 16: 1000.0 * gain},
    )
