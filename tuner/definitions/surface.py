"""The surface file: how a rehearsal engine behaves. The models below are its documented schema.

All seconds in it are *surface seconds*: `time_scale` of them pass in one real second. Conditions
(`when`) are those of a search space; they are read against the arguments that the engine resolved
(`ep-size`), whatever spelling was on the command line, and against environment variables
(`SGLANG_...`, always text). An empty `when` always holds. A table is that of one server; where
several share a host each of them has `TUNER_REPLICAS`, so that `{TUNER_REPLICAS: "2"}` is what two
do to each other.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tuner.definitions.models import Condition, Value
from tuner.definitions.nearest import did_you_mean
from tuner.flags.sglang import FLAGS
from tuner.frozen import Frozen

Phase = Literal["arguments", "distributed", "weights", "kv-cache", "graphs", "warmup"]
"""Where a launch can stand before it serves, in order."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def _known_name(name: str) -> str:
    if name in FLAGS or _VARIABLE.fullmatch(name):
        return name
    meant = did_you_mean(name, FLAGS)
    raise ValueError(
        f"unknown flag '{name}'{meant}, expected a flag of the engine without dashes or a variable"
        " in capitals"
    )


def _known_names(condition: Condition) -> Condition:
    for name in condition:
        _known_name(name)
    return condition


FlagName = Annotated[str, AfterValidator(_known_name)]
When = Annotated[Condition, AfterValidator(_known_names)]
Factor = Annotated[float, Field(gt=0)]
PerConcurrency = Factor | Annotated[dict[Annotated[int, Field(ge=1)], Factor], Field(min_length=1)]
"""One factor for all concurrencies, or concurrency → factor: log-linear between, flat outside."""
Seconds = Annotated[float, Field(ge=0)]


class Point(Frozen):
    """What the engine does with its flags at their defaults while `concurrency` requests run.

    `output_tok_s` is that of a closed loop, first-token times included; `ttft_ms` runs from the
    moment a request is scheduled. Between points both are interpolated on log-log axes, outside
    them the nearest point holds.
    """

    concurrency: int = Field(ge=1)
    output_tok_s: float = Field(gt=0)
    ttft_ms: float = Field(gt=0)


class Conditional(Frozen):
    """Something that holds for a launch only where its condition does."""

    when: When


class Effect(Conditional):
    """What flags do to speed: factors on throughput and first-token time. Effects whose `when`
    holds multiply; one that names two flags is their interaction, on top of what each does."""

    throughput: PerConcurrency = 1.0
    ttft: PerConcurrency = 1.0
    note: str = ""


class Noise(Frozen):
    """Relative standard deviations, all lognormal: of whole launches, of a table point within a
    launch, of stretches of `run_period_s` within a run, and of single first-token times."""

    launch_sd: float = Field(default=0.0, ge=0, lt=1)
    point_sd: float = Field(default=0.0, ge=0, lt=1)
    run_sd: float = Field(default=0.0, ge=0, lt=1)
    run_period_s: float = Field(default=5.0, gt=0)
    ttft_sd: float = Field(default=0.0, ge=0, lt=1)


class Drift(Frozen):
    """A slow wave over the night: throughput swings by `percent` both ways once in `period_s`, by
    the wall clock, so that it goes on from launch to launch."""

    percent: float = Field(gt=0, lt=100)
    period_s: float = Field(gt=0)


class Startup(Frozen):
    """How long each phase of a launch takes; `graphs_s` only where graphs are captured."""

    distributed_s: Seconds = 2.0
    weights_s: Seconds = 10.0
    kv_cache_s: Seconds = 1.0
    graphs_s: Seconds = 5.0
    warmup_s: Seconds = 2.0


class Weights(Conditional):
    """GB of weights a GPU where `when` holds."""

    gb: float = Field(gt=0)


class Memory(Frozen):
    """What the log says of each GPU's memory, and the size of the KV cache. The first entry of
    `weights` whose `when` holds is taken, else `weight_gb`."""

    gpu_gb: float = Field(default=94.97, gt=0)
    weight_gb: float = Field(default=60.89, gt=0)
    weights: list[Weights] = []
    kv_tokens: int = Field(default=250_000, ge=1)


class Override(Conditional):
    """Arguments that the engine changes by itself, with the warning it logs. A value `$tp-size`
    takes another argument's value."""

    set: dict[FlagName, Value] = Field(min_length=1)
    log: str = ""


class Chatter(Conditional):
    """Lines of log that mean nothing, printed when a launch reaches a phase."""

    when: When = {}
    at: Phase
    log: str = Field(min_length=1)


class Crash(Conditional):
    """A death: at a phase of the launch, or `after_s` once `running` requests ran at a time or
    `requests` were answered. Exactly one of the three says when.

    `log` is printed first, as it is; `{time}` becomes the engine's time stamp. `exit` is the form:
    `sigquit` is a scheduler's exception (the engine's line about SIGQUIT, `linger_s` in which
    nothing is generated and /health stays green, then SIGKILL by its own hand), `traceback` leaves
    with 1, `killed` is SIGKILL without a word, `zombie` keeps the process up and answers nothing.
    """

    at: Phase | None = None
    running: int | None = Field(default=None, ge=1)
    requests: int | None = Field(default=None, ge=1)
    after_s: Seconds = 0.0
    log: str = ""
    exit: Literal["sigquit", "traceback", "killed", "zombie"] = "sigquit"
    linger_s: Seconds = 0.0

    @model_validator(mode="after")
    def _one_trigger(self) -> "Crash":
        if sum(trigger is not None for trigger in (self.at, self.running, self.requests)) != 1:
            raise ValueError("expected exactly one of at, running, requests")
        return self


class Hang(Conditional):
    """Standing still: at a phase, never to become ready; or healthy, but no token comes any more
    once `requests` were answered (0: from the first). Exactly one of the two."""

    at: Phase | None = None
    requests: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_trigger(self) -> "Hang":
        if (self.at is None) == (self.requests is None):
            raise ValueError("expected exactly one of at, requests")
        return self


class WrongOutput(Conditional):
    """Output that is not the model's, in a share of the requests: `repeated` is one token over and
    over, `drifting` is fluent but not what the model says (its log-probabilities shift as well),
    `decoding` the same from the second token on, while the first and all log-probabilities are
    right, `empty` is tokens without text, `short` stops after half of what was asked for."""

    kind: Literal["repeated", "drifting", "decoding", "empty", "short"]
    share: float = Field(default=1.0, gt=0, le=1)


class Refusal(Conditional):
    """Requests beyond `above` at a time are answered with 503."""

    above: int = Field(ge=1)


class Orphan(Conditional):
    """A child process in a session of its own that lost its parent, alive until it is killed."""


class Surface(Frozen):
    """The whole file.

    `max_running_requests` is the engine's pool (the flag of that name overrules it): what exceeds
    it waits, so that a rung of 1024 can run at 237. `max_events_per_s` bounds, in real time, how
    often tokens are sent: many streams send several tokens an event, with exact counts.
    `turnaround_s` (real) is how long a closed loop may take to send its next request without the
    engine counting it: at a high `time_scale` a client's millisecond is none of the engine's (an
    open loop's answers would come that much too soon: say 0 for one).
    `resolved` is what the engine decides where a flag is null. `dead` flags are accepted and read
    by nothing: no other entry may name them. `seed` is that of the noise, together with the nonce
    of each launch.
    """

    time_scale: float = Field(gt=0)
    max_events_per_s: float = Field(default=1500.0, gt=0)
    turnaround_s: Seconds = 0.05
    seed: int = 1
    architecture: str = "ForCausalLM"
    table: list[Point] = Field(min_length=1)
    max_running_requests: int = Field(default=2048, ge=1)
    effects: list[Effect] = []
    noise: Noise = Noise()
    drift: Drift | None = None
    startup: Startup = Startup()
    memory: Memory = Memory()
    resolved: dict[FlagName, Value] = {}
    overrides: list[Override] = []
    dead: list[FlagName] = []
    chatter: list[Chatter] = []
    crashes: list[Crash] = []
    hangs: list[Hang] = []
    wrong_output: list[WrongOutput] = []
    refusals: list[Refusal] = []
    orphans: list[Orphan] = []

    @model_validator(mode="after")
    def _consistent(self) -> "Surface":
        levels = [point.concurrency for point in self.table]
        if levels != sorted(set(levels)):
            raise ValueError(f"table: expected rising concurrencies, found {levels}")
        for name in self._named():
            if name in self.dead:
                raise ValueError(f"dead: '{name}' has an effect elsewhere in the file")
        return self

    def _named(self) -> Iterator[str]:
        conditional: tuple[Conditional, ...] = (
            *self.effects, *self.memory.weights, *self.overrides, *self.chatter, *self.crashes,
            *self.hangs, *self.wrong_output, *self.refusals, *self.orphans,
        )  # fmt: skip
        for entry in conditional:
            yield from entry.when
        for override in self.overrides:
            yield from override.set
