"""The protocol that every engine follows.

An engine knows names: how a configuration is spelt on the command line of the installed version,
how its server says that it is ready, what it runs with, how much of the GPUs it takes. It owns no
process, sends no load and decides nothing. `tests/test_engines.py` is one contract suite over all.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tuner.http import Http

from tuner.definitions import EngineDefinition, Value
from tuner.frozen import Frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """A command line and its environment; what the tuner added is kept apart from what was asked.

    `argv` and `env` are what the study asked for; `injected_argv` and `injected_env` (port, host,
    metrics, seed, GPUs) never reach an export.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    injected_argv: tuple[str, ...] = ()
    injected_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_argv(self) -> tuple[str, ...]:
        """The command as it is launched."""
        return self.argv + self.injected_argv

    @property
    def full_env(self) -> dict[str, str]:
        """The variables that are set on top of the inherited environment."""
        return {**self.env, **self.injected_env}

    def shell(self) -> str:
        """The command that was asked for as one line of POSIX shell, nothing injected."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        return " ".join([*assignments, shlex.join(self.argv)])


class LaunchSpec(Frozen):
    """All that an engine needs to spell a command.

    `folder` is the study's, where its relative paths start; `flags` are flag names without dashes
    (`tp-size`), None leaves one out, a bool is spelt as `bool_styles` says (presence, value,
    negation; presence where nothing is said).
    """

    engine: EngineDefinition
    model: str
    folder: Path
    build: str | None = None
    flags: dict[str, Value] = {}
    bool_styles: dict[str, str] = {}
    env: dict[str, str] = {}


class EngineFacts(Frozen):
    """What a running engine says of itself; None where it does not say."""

    version: str | None = None
    weight_gb_per_gpu: float | None = None
    kv_tokens: int | None = None
    captured_sizes: list[int] | None = None


class Engine(Protocol):
    """One serving engine as one study launches it."""

    name: str
    rehearsal: bool
    """True where nothing that is measured is a benchmark; every output then says so."""
    time_scale: float
    """Surface seconds per real second; 1.0 for every real engine."""
    api: Literal["completions", "generate"]
    """How load is spoken: OpenAI's /v1/completions, or SGLang's /generate."""
    served_model: str
    """The model name that requests carry."""

    def command(self, *, host: str, port: int, extra_ports: tuple[int, ...]) -> LaunchCommand:
        """The launch of this configuration on this address. Raises EngineError."""
        ...

    def gpus_needed(self) -> int:
        """How many GPUs this configuration occupies."""
        ...

    async def ready(self, http: Http) -> bool:
        """True once health answers and one real generation came back with tokens."""
        ...

    async def effective(self, http: Http) -> dict[str, Value]:
        """The arguments that the server runs with, by flag name without dashes, where it says."""
        ...

    async def facts(self, http: Http, log: str) -> EngineFacts:
        """Version, weights, KV tokens, captured sizes, from endpoints and log."""
        ...

    async def load_now(self, http: Http) -> tuple[float, float] | None:
        """Requests running and queued at this moment, by the engine's own count."""
        ...
