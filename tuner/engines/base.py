"""The protocol that every engine follows.

An engine knows names: how a configuration is spelt on the command line of the installed version,
how its server says that it is ready, what it runs with, how much of the GPUs it takes. It owns no
process, sends no load and decides nothing. `tests/test_engines.py` is one contract suite over all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from tuner.definitions.models import EngineDefinition, Serve, Value
from tuner.engines.images import Image
from tuner.engines.metric_names import MetricNames
from tuner.engines.spelling import resolve, shell_word, shown_argv, shown_env
from tuner.flags.catalogue import Catalogue
from tuner.frozen import Frozen
from tuner.measuring.fidelity import TokenScore

if TYPE_CHECKING:
    from tuner.engines.overrides import Override
    from tuner.http.client import Http
    from tuner.load import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """A command line and its environment; what the tuner added is kept apart from what was asked.

    `argv` and `env` are what the study asked for; `withheld_argv` and `withheld_env` too, but only
    the export gets them, since here the tuner decides (port, host, keys, which GPUs);
    `injected_argv` and `injected_env` are its own (port, host, metrics, seed, GPUs) and never
    reach an export. Values may refer to variables as `${NAME}`: only a launch looks them up, so
    that neither this object nor a record holds what they stand for.

    With an `image` all of these are the words and variables inside a container, and its runtime
    runs it.
    """

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    withheld_argv: tuple[str, ...] = field(default=(), repr=False)
    withheld_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    injected_argv: tuple[str, ...] = ()
    injected_env: Mapping[str, str] = field(default_factory=dict)
    image: Image | None = None

    @property
    def full_argv(self) -> tuple[str, ...]:
        """The command as it is launched. Raises EngineError for a variable that is not set."""
        return tuple(resolve(word) for word in self.argv) + self.injected_argv

    @property
    def full_env(self) -> dict[str, str]:
        """The variables that are set on top of the inherited environment, looked up.

        Raises EngineError for a variable that is not set.
        """
        asked = {name: resolve(value) for name, value in self.env.items()}
        return {**asked, **self.injected_env}

    def shown_argv(self) -> tuple[str, ...]:
        """The arguments that were asked for, nothing injected, secrets as `${NAME}`."""
        return shown_argv(self.argv + self.withheld_argv)

    def shown_env(self) -> dict[str, str]:
        """The variables that were asked for, nothing injected, secrets as `${NAME}`."""
        return shown_env({**self.env, **self.withheld_env})

    def shell(self) -> str:
        """What was asked for as one line of POSIX shell, nothing injected.

        A secret becomes `"${NAME:?set NAME}"`: the shell stops where it is not set.
        """
        if self.image is not None:
            return self.image.line(self.shown_env(), self.shown_argv(), launched=False)
        return _line(self.shown_env(), self.shown_argv())

    def launched_shell(self) -> str:
        """What is launched as one line of POSIX shell, with all that was injected, no secret."""
        env = {**shown_env(self.env), **self.injected_env}
        argv = shown_argv(self.argv) + self.injected_argv
        if self.image is not None:
            return self.image.line(env, argv, launched=True)
        return _line(env, argv)


def _line(env: Mapping[str, str], argv: tuple[str, ...]) -> str:
    assignments = [f"{name}={shell_word(value)}" for name, value in sorted(env.items())]
    return " ".join([*assignments, *(shell_word(word) for word in argv)])


class LaunchSpec(Frozen):
    """All that an engine needs to spell a command.

    `folder` is the study's, where its relative paths start; `flags` are flag names without dashes
    (`tp-size`), None leaves one out, a bool is spelt as `bool_styles` says (presence, value,
    negation; presence where nothing is said); `serve` is where an export listens.
    """

    engine: EngineDefinition
    model: str
    folder: Path
    build: str | None = None
    flags: dict[str, Value] = {}
    bool_styles: dict[str, str] = {}
    env: dict[str, str] = {}
    serve: Serve = Serve()


class EngineFacts(Frozen):
    """What a running engine says of itself; None where it does not say. `warnings` are its log's
    until it served."""

    version: str | None = None
    weight_gb_per_gpu: float | None = None
    kv_tokens: int | None = None
    captured_sizes: list[int] | None = None
    warnings: list[str] | None = None


class Engine(Protocol):
    """One serving engine as one study launches it."""

    name: str
    rehearsal: bool
    """True where nothing that is measured is a benchmark; every output then says so."""
    time_scale: float
    """Surface seconds per real second; 1.0 for every real engine."""
    turnaround_s: float
    """How late (real) a stream may ask again without its noticing; 0.0 for every real engine."""
    api: "Api"
    """How load is spoken where the objective does not say."""
    served_model: str
    """The model name that requests carry."""
    usual_port: ClassVar[int]
    """Where it listens unless it is told otherwise."""

    metrics: ClassVar[MetricNames]
    """How it calls what it counts of itself."""

    def command(
        self,
        *,
        host: str,
        port: int,
        extra_ports: tuple[int, ...],
        gpus: tuple[str, ...] = (),
    ) -> LaunchCommand:
        """The launch of this configuration on this address; `gpus` are the UUIDs it may see,
        empty where GPUs are not real. Raises EngineError."""
        ...

    def version(self) -> str | None:
        """The engine's version as installed where it would be launched, asked without loading it;
        None where that cannot be told before a launch."""
        ...

    def cuda(self) -> str | None:
        """The version of the CUDA runtime that it was installed with; None without one."""
        ...

    def catalogue(self) -> Catalogue | None:
        """The flags that the engine declares, by its own word or as they were recorded of its
        version; None where nobody can tell."""
        ...

    def preflight(self) -> list[str]:
        """What would keep this launch from starting on this machine, one sentence each."""
        ...

    def gpus_needed(self) -> int:
        """How many GPUs this configuration occupies."""
        ...

    async def ready(self, http: "Http") -> bool:
        """True once health answers and one real generation came back with tokens."""
        ...

    async def unready(self, http: "Http") -> str:
        """Why the server is not ready, by what it answers; empty once it is."""
        ...

    async def effective(self, http: "Http", log: str) -> dict[str, Value]:
        """The arguments that the server runs with, by flag name without dashes, where it says.

        Equal for two launches that run alike: no address, no seed of ours, nothing of the moment.
        Raises HttpError.
        """
        ...

    def overridden(self, effective: Mapping[str, Value], log: str) -> "list[Override]":
        """What was passed and is otherwise in the arguments read back, and by whose word."""
        ...

    async def facts(self, http: "Http", log: str) -> EngineFacts:
        """Version, weights, KV tokens, captured sizes, from endpoints and log."""
        ...

    async def load_now(self, http: "Http") -> tuple[float, float] | None:
        """Requests running and queued at this moment, by the engine's own count."""
        ...

    async def flush(self, http: "Http") -> str:
        """Have the server forget every prefix it keeps; why it did not, empty where it did."""
        ...

    async def tokens(self, http: "Http", text: str) -> list[int] | None:
        """The ids that the server's tokenizer makes of a text; None where it has none to ask.

        Raises HttpError.
        """
        ...

    async def continuation(
        self, http: "Http", prompt: Sequence[int], tokens: int, timeout_s: float
    ) -> list[int]:
        """The ids of so many greedy tokens after a prompt. Raises HttpError."""
        ...

    async def scores(
        self, http: "Http", prompt: Sequence[int], output: Sequence[int]
    ) -> list[TokenScore]:
        """How likely the server finds each token of an output after a prompt. Raises HttpError."""
        ...
