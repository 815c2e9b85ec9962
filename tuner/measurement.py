"""Timings of requests over a steady window → the numbers of one rung. Pure."""

from dataclasses import dataclass

from tuner.frozen import Frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """What one request did, in seconds on the load's clock (surface time for a rehearsal).

    `events` holds (arrival, new output tokens) of every event that carried tokens, in order.
    Tokens come from the server's own count, never from the number of events.
    """

    stream: int
    index: int
    sent_s: float
    events: tuple[tuple[float, int], ...]
    done_s: float | None
    input_tokens: int
    output_tokens: int
    requested_tokens: int
    error: str | None = None
    text: str = ""


class Distribution(Frozen):
    """Percentiles of one latency over the requests (or tokens) of a window."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class EngineLoad(Frozen):
    """The engine's own count of requests while the window was open, sampled."""

    running_mean: float
    running_max: float
    queued_mean: float
    queued_max: float
    samples: int


class RungMeasurement(Frozen):
    """One rung: a closed loop at `concurrency`, seen through a steady window of `window_s`.

    A latency is None where no request of the window could show it.
    """

    concurrency: int
    window_s: float
    output_tok_s: float
    input_tok_s: float
    total_tok_s: float
    tok_s_per_gpu: float
    tok_s_per_user: float | None
    requests_completed: int
    requests_failed: int
    first_error: str | None = None
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    itl_ms: Distribution | None
    e2e_ms: Distribution | None
    engine_load: EngineLoad | None = None
