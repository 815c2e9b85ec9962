"""What a person writes: study, search space, objective.

The models say what is right; `tuner.definitions.validation` says what is wrong, where and how to
mend it.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tuner.definitions.levels import level_words
from tuner.definitions.slo import of_single_requests
from tuner.flags.names import Value as Value
from tuner.flags.names import canonical
from tuner.frozen import Frozen

FlagName = Annotated[str, Field(min_length=1), AfterValidator(canonical)]
"""A flag, written with its dashes or without, underscores or dashes within; stored in one
spelling."""

Operand = Value | list[Value] | dict[Literal["lt", "le", "gt", "ge", "not"], Value]
Condition = dict[str, Operand]
"""Parameter name → the value it must have, a list of values any of which will do, or a
comparison such as `{gt: 8}`; all entries must hold.

A text on the right of lt, le, gt, ge names another parameter. An inactive parameter counts as
null: it satisfies null and `{not: 8}`, and none of lt, le, gt, ge."""

Attacks = Literal[
    "launch-overhead", "communication", "expert-gemm", "attention", "memory", "scheduling"
]
Effort = Literal["minutes", "hours", "days"]
Risk = Literal["low", "medium", "high"]

MAX_TOKENS = 2_000_000
"""Longer than any model's context: a number that is no length."""
MAX_CONCURRENCY = 100_000
"""More connections than a machine has ports for several servers."""

EFFORT_HOURS: Mapping[str, float] = {"minutes": 0.25, "hours": 4.0, "days": 24.0}


class _Parameter(Frozen):
    """A flag (by its name, dashes or none; the parameter's own name where nothing is said), an
    environment variable, or a build.

    Where `when` does not hold the parameter is inactive: it is not set at all. A default of null
    leaves it to the engine, and the search then tries that too. Where `versions` (a specifier)
    does not admit the engine's version there is no such parameter: it is inactive whatever holds.
    """

    flag: FlagName | None = None
    env: str | None = None
    build: bool = False
    when: Condition = {}
    versions: str | None = Field(
        default=None, description="a version specifier such as '>=0.5.17' or '>=0.5,<0.6'"
    )
    note: str = ""


class BoolParameter(_Parameter):
    """On or off. `presence`: the flag stands alone when true; `value`: `--flag true|false`;
    `negation`: `--flag` or `--no-flag`. A variable is 1, and when false absent (`presence`)
    or 0 (`value`)."""

    type: Literal["bool"]
    style: Literal["presence", "value", "negation"] = "presence"
    default: bool = False


class ChoiceParameter(_Parameter):
    """One of a list; null leaves it to the engine. `choice_versions` says which versions have a
    choice, where not all do that have the parameter."""

    type: Literal["choice"]
    choices: list[Value] = Field(min_length=1)
    choice_versions: dict[str, str] | None = None
    default: Value = None


class IntParameter(_Parameter):
    """A whole number from `low` to `high`, both included, in steps from `low`.

    With `log` the search tries powers of two and both ends.
    """

    type: Literal["int"]
    low: int
    high: int
    step: int = Field(default=1, ge=1)
    log: bool = False
    default: int | None = None


class FloatParameter(_Parameter):
    """A number from `low` to `high`, both included."""

    type: Literal["float"]
    low: float
    high: float
    step: float | None = Field(default=None, gt=0)
    log: bool = False
    default: float | None = None


Parameter = Annotated[
    BoolParameter | ChoiceParameter | IntParameter | FloatParameter, Field(discriminator="type")
]


class Forbid(Frozen):
    """Combinations that must not be launched (with these versions of the engine), and why."""

    if_: Condition = Field(alias="if", min_length=1)
    reason: str
    versions: str | None = None


class Require(Frozen):
    """Where `if` holds (with these versions of the engine), `then` must hold as well."""

    if_: Condition = Field(alias="if", min_length=1)
    then: Condition = Field(min_length=1)
    reason: str
    versions: str | None = None


class Hypothesis(Frozen):
    """A change that somebody expects to help, written down before it is measured; in these
    versions of the engine, where it is said."""

    id: str = Field(min_length=1)
    change: dict[str, Value] = Field(min_length=1)
    claim: str
    gain_percent: tuple[float, float] = Field(description="two numbers, from and to, in percent")
    effort: Effort = "minutes"
    risk: Risk = "low"
    why: str = ""
    tier: int = Field(default=1, ge=1)
    attacks: Attacks | None = None
    depends_on: list[str] = []
    versions: str | None = None


class SpaceDefinition(Frozen):
    """`search_spaces/*.yaml`."""

    parameters: dict[str, Parameter] = Field(min_length=1)
    forbid: list[Forbid] = []
    require: list[Require] = []
    hypotheses: list[Hypothesis] = []


class Rung(Frozen):
    """One concurrency of the ladder (closed loop) or one request rate, in requests a second (open
    loop), never both; `slos` such as `ttft_ms p99 <= 500`."""

    concurrency: int | None = Field(default=None, ge=1, le=MAX_CONCURRENCY)
    request_rate: float | None = Field(default=None, gt=0, le=MAX_CONCURRENCY)
    weight: float = Field(default=1.0, gt=0)
    slos: list[str] = []

    @property
    def level(self) -> float:
        """The concurrency or the request rate, whichever is given."""
        return self.request_rate or self.concurrency or 0

    @property
    def said(self) -> str:
        """`8`, or `2.5 req/s`."""
        return level_words(self.level, by_rate=self.request_rate is not None)


Api = Literal["completions", "chat", "generate"]
"""How load is spoken: OpenAI's completions or chat, or SGLang's own `/generate`."""


class LengthDistribution(Frozen):
    """Lengths that vary from request to request: `mean` and `sd` (standard deviation) of the tokens
    themselves, before they are cut to [`low`, `high`]; without a `high`, ten times the mean, or
    what no context exceeds."""

    distribution: Literal["normal", "lognormal"]
    mean: float = Field(ge=1, le=MAX_TOKENS)
    sd: float = Field(gt=0, le=MAX_TOKENS)
    low: int = Field(default=1, ge=1, le=MAX_TOKENS)
    high: int | None = Field(default=None, ge=1, le=MAX_TOKENS)


class SharedPrefix(Frozen):
    """That share of each prompt's tokens is one start that all prompts have."""

    shared: float = Field(gt=0, lt=1)


Prefix = Literal["cold", "warm"] | SharedPrefix
"""What prompts have in common: no start; everything, since the same set is asked over and over; or
a start of a stated share."""


class Seeds(Frozen):
    """Separate seeds, so that one can be varied alone."""

    prompts: int = 1
    order: int = 2
    arrivals: int = 3


class Decision(Frozen):
    """How sure a verdict must be: the confidence of its interval, and the band (percent)
    inside which an effect counts as none; and what becomes of a configuration whose output is
    `differing` from the baseline's: it is refused, or (a quantisation, for one) admitted."""

    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)
    equivalence_percent: float = Field(default=3.0, gt=0)
    differing: Literal["reject", "admit"] = "reject"


class Objective(Frozen):
    """`objectives/*.yaml`: what load is played and what is scored.

    Requests are of one length or a distribution (`input_tokens`, `output_tokens`), or those of
    `trace`, a file of JSON lines whose path starts at the objective's folder. `api` is how they are
    asked, null: as the engine does by itself. `arrivals` is how those of an open loop come: in
    Poisson's gaps, evenly, or as the trace's did, at the rung's rate. A window ends before
    `window_s` where throughput is known to `precision_percent` (null: never), and after it where a
    percentile that an SLO names has too few requests.
    """

    ladder: list[Rung] = Field(min_length=1)
    api: Api | None = None
    input_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | LengthDistribution | None = None
    output_tokens: Annotated[int, Field(ge=2, le=MAX_TOKENS)] | LengthDistribution | None = None
    trace: str | None = Field(default=None, min_length=1)
    prefix: Prefix = "cold"
    arrivals: Literal["poisson", "constant", "trace"] = "poisson"
    score: Literal["output", "total", "input", "goodput"] = "output"
    slos: list[str] = []
    warmup_s: float = Field(default=5.0, ge=0)
    window_s: float = Field(default=30.0, gt=0)
    precision_percent: float | None = Field(default=None, gt=0)
    seeds: Seeds = Seeds()
    decision: Decision = Decision()

    @property
    def by_rate(self) -> bool:
        """Whether the ladder is one of request rates: an open loop."""
        return self.ladder[0].request_rate is not None

    @property
    def admits(self) -> bool:
        """Whether output that is not the baseline's is shown rather than refused."""
        return self.decision.differing == "admit"

    def slos_at(self, rung: Rung) -> list[str]:
        """What is said of a rung: everybody's limits and its own."""
        return [*self.slos, *rung.slos]

    def limits_at(self, rung: Rung) -> list[str]:
        """Those that a configuration must keep there. Where goodput is scored, limits on latencies
        of single requests say which of them count, and refuse nothing."""
        counts = self.score == "goodput"
        return [text for text in self.slos_at(rung) if not (counts and of_single_requests(text))]

    def said(self, level: float) -> str:
        """A rung of the ladder as it stands behind 'at'."""
        return level_words(level, by_rate=self.by_rate)


class Launch(Frozen):
    """One way to start the engine: its own interpreter, a command prefix, or a container image,
    inside which a command prefix may be named."""

    python: str | None = Field(default=None, min_length=1)
    command: list[str] | None = Field(default=None, min_length=1)
    image: str | None = Field(default=None, min_length=1)


class Containers(Frozen):
    """How images are run: by which runtime, on the host's network or with one mapped port, with
    which further options of its `run` (`--ipc=host`, `--shm-size=32g`, `-v=...`)."""

    runtime: str = Field(default="docker", min_length=1)
    network: Literal["host", "bridge"] = "host"
    options: list[str] = []


class EngineDefinition(Launch):
    """Which engine and how it is launched.

    `builds` are further launches of the same engine that a build parameter selects by name. A
    rehearsal needs a `surface` and may leave the launch out. `version` is what spaces with
    `versions` are read for where the engine is not installed; where it is, both must agree.
    `start_s` is about how long a launch takes until it is ready: plans count with it before
    anything was measured. A server that is not ready after `ready_timeout_s` is given up, and one
    that shows no sign of life for `stall_timeout_s`: while it starts no new line of log, no work
    of its processes, nothing read; under load no token.
    """

    name: Literal["vllm", "sglang", "rehearsal"]
    version: str | None = Field(default=None, min_length=1)
    containers: Containers = Containers()
    surface: str | None = None
    builds: dict[str, Launch] = {}
    start_s: float | None = Field(default=None, gt=0)
    ready_timeout_s: float = Field(default=1800.0, gt=0)
    stall_timeout_s: float = Field(default=120.0, gt=0)


Published = Annotated[
    str,
    Field(
        pattern=r"^(?:(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]):)?[1-9]\d{0,4}:[1-9]\d{0,4}$",
        description="[ADDRESS:]PORT:PORT, such as 127.0.0.1:8000:30000",
    ),
]
"""A port of the host, on all of its addresses or one, and the port in the container behind it."""


class Fixed(Frozen):
    """What every launch gets, baseline included."""

    flags: dict[FlagName, Value] = {}
    env: dict[str, str] = {}


class Serve(Frozen):
    """Where an exported command listens, and which ports of a container on the bridge network are
    published; the engine's own default where nothing is said. No launch of the tuner has these."""

    host: str | None = Field(default=None, min_length=1)
    port: int | None = Field(default=None, ge=1, le=65535)
    publish: list[Published] = []

    @property
    def flags(self) -> dict[str, Value]:
        """As the engines call them."""
        said: dict[str, Value] = {"host": self.host, "port": self.port}
        return {name: value for name, value in said.items() if value is not None}


class Hardware(Frozen):
    """How many GPUs a host has; without GPUs the declared number is handed out all the same."""

    gpus: int = Field(default=1, ge=1)
    ray: str | None = None


class Budget(Frozen):
    """When to stop: launches, hours of running (all runs together), a time of day such as 07:30."""

    trials: int | None = Field(default=None, ge=1)
    hours: float | None = Field(default=None, gt=0)
    deadline: str | None = Field(
        default=None,
        pattern=r"^([01]\d|2[0-3]):[0-5]\d$",
        description="a time of day from 00:00 to 23:59",
    )


class Search(Frozen):
    """Any sampler of optuna.samplers by class name, with its seed."""

    sampler: str = "TPESampler"
    seed: int = 1


class StudyDefinition(Frozen):
    """`studies/NAME/study.yaml`."""

    engine: EngineDefinition
    model: str = Field(min_length=1)
    fixed: Fixed = Fixed()
    serve: Serve = Serve()
    space: str
    objective: str
    baseline: dict[str, Value] = {}
    hardware: Hardware = Hardware()
    budget: Budget
    search: Search = Search()
