"""Small values that tests of several rooms need."""

from collections.abc import Mapping
from typing import Any

from tuner.definitions.models import Objective, Value
from tuner.measuring.measurement import Distribution, RungMeasurement
from tuner.records import TrialRecord

OBJECTIVE = Objective.model_validate_json(
    '{"ladder": [{"concurrency": 1}, {"concurrency": 16}], "input_tokens": 64,'
    ' "output_tokens": 64, "warmup_s": 0.2, "window_s": 1.0}'
)


def distribution(value: float) -> Distribution:
    """A latency that is the same for all requests."""
    return Distribution(count=10, mean=value, p50=value, p90=value, p95=value, p99=value, max=value)


def rung(concurrency: int, output_tok_s: float, **changes: Any) -> RungMeasurement:
    """One rung at that output rate."""
    tpot_ms = 1000 * concurrency / output_tok_s
    fields: dict[str, Any] = {
        "concurrency": concurrency,
        "window_s": 10.0,
        "output_tok_s": output_tok_s,
        "input_tok_s": output_tok_s,
        "total_tok_s": 2 * output_tok_s,
        "tok_s_per_gpu": output_tok_s,
        "tok_s_per_user": output_tok_s / concurrency,
        "requests_completed": 10,
        "requests_failed": 0,
        "ttft_ms": distribution(50.0),
        "tpot_ms": distribution(tpot_ms),
        "itl_ms": distribution(tpot_ms),
        "e2e_ms": distribution(64 * tpot_ms),
    }
    return RungMeasurement(**{**fields, **changes})


def record(
    number: int,
    kind: str = "baseline",
    *,
    key: str = "base",
    values: Mapping[str, Value] | None = None,
    rates: Mapping[int, float] | None = None,
    **changes: Any,
) -> TrialRecord:
    """A completed launch; `rates` are output tok/s by concurrency."""
    rates = {1: 100.0, 16: 1000.0} if rates is None else rates
    fields: dict[str, Any] = {
        "number": number,
        "kind": kind,
        "key": key,
        "values": dict(values or {}),
        "started_at": f"2026-01-01T{number // 60 % 24:02d}:{number % 60:02d}:00+00:00",
        "duration_s": 10.0,
        "command": "serve",
        "outcome": "completed",
        "rungs": [rung(concurrency, rate) for concurrency, rate in rates.items()],
    }
    return TrialRecord(**{**fields, **changes})
