"""Makes the records of nights that never happened, for the rooms that only read records."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.definitions.models import Decision, Objective, Rung
from tuner.failures.classifier import Failure
from tuner.measuring.measurement import Distribution, RungMeasurement
from tuner.records import Outcome, TrialKind, TrialRecord

BASE = {1: 9.17, 10: 38.03, 256: 352.79, 1024: 1520.55}
BASELINE = "base"


def objective(ladder: Sequence[int | Rung] = tuple(BASE), **changes) -> Objective:
    rungs = [rung if isinstance(rung, Rung) else Rung(concurrency=rung) for rung in ladder]
    values = {"ladder": rungs, "input_tokens": 16, "output_tokens": 16, "decision": Decision()}
    return Objective(**{**values, **changes})


def rung(concurrency: int, tok_s: float, **changes) -> RungMeasurement:
    values: dict[str, Any] = {
        "concurrency": concurrency,
        "window_s": 30.0,
        "output_tok_s": tok_s,
        "input_tok_s": tok_s,
        "total_tok_s": 2 * tok_s,
        "tok_s_per_gpu": tok_s / 8,
        "tok_s_per_user": tok_s / concurrency,
        "requests_completed": 100,
        "requests_failed": 0,
        "ttft_ms": TTFT_MS,
        "tpot_ms": None,
        "itl_ms": None,
        "e2e_ms": None,
    }
    return RungMeasurement(**{**values, **changes})


def distribution(p50: float) -> Distribution:
    return Distribution(
        count=100, mean=p50, p50=p50, p90=1.2 * p50, p95=1.3 * p50, p99=1.5 * p50, max=2 * p50
    )


TTFT_MS = distribution(100.0)


def failure(cause: str = "it broke", **changes) -> Failure:
    values: dict[str, Any] = {
        "kind": "kernel_fault",
        "cause": cause,
        "action": "never",
        "advice": "leave it out",
        "phase": "loading",
    }
    return Failure(**{**values, **changes})


def record(number: int, kind: TrialKind, key: str, rungs=(), **changes) -> TrialRecord:
    outcome: Outcome = "failed" if changes.get("failure") else "completed"
    values: dict[str, Any] = {
        "number": number,
        "kind": kind,
        "key": key,
        "values": {},
        "started_at": "2026-01-01T00:00:00Z",
        "duration_s": 60.0,
        "command": "serve",
        "outcome": outcome,
        "rungs": list(rungs),
    }
    return TrialRecord(**{**values, **changes})


class Night:
    """A night in the making: launches with noise common to a launch and noise of each rung.

    `drift` is the change of the log throughput from one launch to the next.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        sd: float = 0.01,
        rung_sd: float = 0.0,
        drift: float = 0.0,
        base: Mapping[int, float] = BASE,
    ) -> None:
        self.random = random.Random(seed)
        self.sd, self.rung_sd, self.drift, self.base = sd, rung_sd, drift, base
        self.records: list[TrialRecord] = []

    def launch(
        self,
        kind: TrialKind,
        key: str,
        gain: float | Mapping[int, float] = 0.0,
        *,
        reaches: Sequence[int] | None = None,
        **changes,
    ) -> TrialRecord:
        """Add a launch whose true gain (log, or by rung) is given; `reaches` are the rungs run."""
        number = len(self.records)
        common = self.random.gauss(0, self.sd) + self.drift * number
        rungs = []
        for concurrency in self.base if reaches is None else reaches:
            true = gain.get(concurrency, 0.0) if isinstance(gain, Mapping) else gain
            noise = common + (self.random.gauss(0, self.rung_sd) if self.rung_sd else 0.0)
            rungs.append(rung(concurrency, self.base[concurrency] * math.exp(true + noise)))
        made = record(number, kind, key, rungs, **changes)
        self.records.append(made)
        return made

    def baseline(self, times: int = 1) -> None:
        for _ in range(times):
            self.launch("baseline", BASELINE)


def played(
    seed: int,
    finalists: Callable[[list[TrialRecord]], list[str]],
    *,
    gain: float = 0.0,
    drift: float = 0.0,
    rounds: int = 3,
    best: int = 2,
    more: int = 0,
) -> Night:
    """A whole night over 15 candidates of which the first has a true gain.

    Calibration, search with a sentinel every eight launches, confirmation in turns; in `more`
    launches the finalists that take the place of refuted ones have their turn too.
    """
    night = Night(seed, sd=0.01, drift=drift, base={1: 10.0, 256: 300.0})
    night.baseline(3)
    for i in range(15):
        night.launch("search", f"c{i}", gain if i == 0 else 0.0)
        if i % 8 == 7:
            night.baseline()
    chosen = finalists(night.records)[:best]
    for turn in range(rounds):
        for key in chosen:
            night.launch("confirm", key, gain if key == "c0" else 0.0)
        if turn < rounds - 1:
            night.baseline()
    made = Counter(dict.fromkeys(chosen, rounds))
    for _ in range(more):
        behind = [key for key in finalists(night.records)[:best] if made[key] < 6]
        if behind:
            key = min(behind, key=lambda key: made[key])
            made[key] += 1
            night.launch("confirm", key, gain if key == "c0" else 0.0)
            night.baseline()
    return night
