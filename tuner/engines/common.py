"""What all engines have in common: from flags to a command, and the order of questions.

An engine's own module holds only its names: flags, endpoints, metrics, log lines.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.definitions.models import Value
from tuner.engines.base import EngineFacts, LaunchCommand, LaunchSpec
from tuner.engines.flushing import OK, flush
from tuner.engines.image_launch import image_faults, image_of
from tuner.engines.images import ANY_ADDRESS, Image, for_client
from tuner.engines.interpreter import (
    Installed,
    in_folder,
    installed,
    launch_words,
    model_faults,
    program_faults,
    python_words,
)
from tuner.engines.metric_names import MetricNames
from tuner.engines.overrides import Override, overrides
from tuner.engines.scoring import token_ids
from tuner.engines.spelling import resolve, spell, unset_references
from tuner.errors import EngineError, HostError, HttpError, HttpStatusError
from tuner.flags.catalogue import Catalogue
from tuner.flags.names import canonical, is_variable
from tuner.flags.probe import ask
from tuner.flags.record import recorded
from tuner.hosts.containers import Runtime
from tuner.http.exposition import gauges

if TYPE_CHECKING:
    from tuner.http.client import Http
    from tuner.load import Api

GENERATION_TIMEOUT_S = 60.0
PROBE_TOKENS = (11, 12, 13, 14)
"""The prompt of the generation that shows readiness: ids that every vocabulary has."""

SIZE_FLAGS = frozenset(
    {
        *("tp", "tp-size", "tensor-parallel-size", "pp", "pp-size", "pipeline-parallel-size"),
        *("dp", "dp-size", "data-parallel-size", "enable-dp-attention", "dwdp-size"),
        *("pcp", "prefill-context-parallel-size", "dpl", "data-parallel-size-local"),
    }
)
"""The flags that make a configuration larger or smaller, of all engines."""

_CUDA_RUNTIMES = (
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu13",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-runtime-cu11",
)
"""The distributions that carry it, the newest first."""

QUIET_ENV = {"DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"}


class CommonEngine:
    """One engine as one study launches it. Follows `base.Engine`; engines fill in the names."""

    name: str
    rehearsal: bool = False
    time_scale: float = 1.0
    turnaround_s: float = 0.0
    api: "Api"

    module: ClassVar[str]
    """What the interpreter runs: `python -m module`."""
    distributions: ClassVar[tuple[str, ...]]
    """The names under which the engine is installed."""
    usual_port: ClassVar[int]
    """Where it listens unless it is told otherwise."""
    model_flag: ClassVar[str]
    list_flags: ClassVar[frozenset[str]]
    """Flags that take several words."""
    withheld_flags: ClassVar[frozenset[str]]
    """Flags that only an export gets: the tuner serves itself alone, without keys or
    certificates, on an address of its own."""
    withheld_env: ClassVar[frozenset[str]]
    flag_aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Other names of a flag, by the name under which it is read back."""
    metrics: ClassVar[MetricNames]
    flush_path: ClassVar[str]

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.flags = {canonical(name): value for name, value in spec.flags.items()}
        self.model = in_folder(spec.folder, spec.model)
        self.served_model = self._served_model()

    def _served_model(self) -> str:
        named = str(self.flags.get("served-model-name") or self.model).split()
        name = named[0] if named else self.model
        return name if unset_references([name]) else resolve(name)

    def command(
        self,
        *,
        host: str,
        port: int,
        extra_ports: tuple[int, ...],
        gpus: tuple[str, ...] = (),
    ) -> LaunchCommand:
        """The launch on this address, what was asked for apart from what is added.

        Raises EngineError where the study names no way to launch that this machine has.
        """
        asked = {name: value for name, value in self.flags.items() if name != self.model_flag}
        kept = {name: asked[name] for name in asked if name not in self.withheld_flags}
        withheld = {name: asked[name] for name in asked if name in self.withheld_flags}
        withheld |= self.spec.serve.flags
        env = {name: self._path(value) for name, value in self._checked_env().items()}
        image = self._image(port, gpus)
        injected = dict(self.injected_flags(host, port, extra_ports))
        if image is not None and image.network == "bridge":
            # Inside, 127.0.0.1 is the container's own: what is published would reach nobody.
            injected["host"] = ANY_ADDRESS
            withheld.setdefault("host", ANY_ADDRESS)
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        return LaunchCommand(
            argv=(*self.launch_words(), *self.model_words(), *self._spelt(kept)),
            env={name: value for name, value in env.items() if name not in self._env_withheld()},
            withheld_argv=self._spelt(withheld),
            withheld_env={
                name: value for name, value in env.items() if name in self._env_withheld()
            },
            injected_argv=spell(injected, {}),
            injected_env={**QUIET_ENV, **self.injected_env(extra_ports), **visible},
            image=image,
        )

    def _image(self, port: int = 0, gpus: tuple[str, ...] = ()) -> Image | None:
        return image_of(
            self.spec,
            self._paths(),
            port=port,
            usual_port=self.usual_port,
            gpus=gpus,
            all_gpus=not self.rehearsal,
        )

    def _paths(self) -> Iterator[str]:
        """What of the host a container may have to see. A variable mostly names a place inside the
        image: of those only what lies in the study's folder counts."""
        yield self.model
        yield from self.own_paths()
        for value in filter(None, self.flags.values()):
            yield from self._path(str(value)).replace(":", " ").split()
        for value in self._checked_env().values():
            there = set(self._path(value).split(":"))
            yield from sorted(there - set(value.split(":")))

    def own_paths(self) -> tuple[str, ...]:
        """Paths that the engine itself comes from, where it is not in the image."""
        return ()

    def launch_words(self) -> tuple[str, ...]:
        """The first words of the command. Raises EngineError."""
        return launch_words(self.spec, self.module)

    def model_words(self) -> tuple[str, ...]:
        """How the model is named on the command line."""
        return (f"--{self.model_flag}", self.model)

    def injected_flags(
        self, host: str, port: int, extra_ports: tuple[int, ...]
    ) -> Mapping[str, Value]:
        """The flags that the tuner adds."""
        raise NotImplementedError

    def injected_env(self, extra_ports: tuple[int, ...]) -> Mapping[str, str]:
        """The variables that the tuner adds, over those of all engines."""
        return {}

    def gpus_needed(self) -> int:
        """How many GPUs this configuration occupies."""
        raise NotImplementedError

    def _env_withheld(self) -> frozenset[str]:
        return self.withheld_env | {"CUDA_VISIBLE_DEVICES"}

    def _spelt(self, flags: Mapping[str, Value]) -> tuple[str, ...]:
        placed = {
            name: self._path(value) if isinstance(value, str) else value
            for name, value in flags.items()
        }
        return spell(placed, self.spec.bool_styles, list_flags=self.list_flags)

    def _path(self, text: str) -> str:
        """Paths of the study's folder made absolute: the server runs elsewhere."""
        parts = text.split(":")
        return ":".join(in_folder(self.spec.folder, p) if "/" in p else p for p in parts)

    def _checked_env(self) -> Mapping[str, str]:
        for name in self.spec.env:
            if not is_variable(name):
                raise EngineError(
                    f"env: {name!r} is not the name of a variable",
                    hint="Names have letters, digits and _, and begin with no digit.",
                )
        return self.spec.env

    def asked_size(self, *names: str) -> int:
        """The whole number that one of these flags was set to, 1 where none was.

        Raises EngineError for anything that is not a whole number above 0.
        """
        for name in names:
            value = self.flags.get(name)
            if value is not None:
                text = str(value)
                if not text.isdecimal() or int(text) < 1:
                    raise EngineError(f"--{name}: found {text}, expected a whole number above 0")
                return int(text)
        return 1

    def version(self) -> str | None:
        """The installed version, asked of the interpreter without loading the engine."""
        try:
            answer = self._installed()
        except EngineError:
            return None
        return answer.version if answer else None

    def cuda(self) -> str | None:
        """The version of the CUDA runtime that it was installed with; None without one."""
        try:
            answer = self._installed(_CUDA_RUNTIMES)
        except EngineError:
            return None
        return answer.version if answer else None

    def _installed(self, distributions: tuple[str, ...] | None = None) -> Installed | None:
        return installed(
            self.launch_words(),
            self._checked_env(),
            package=self.module.partition(".")[0],
            distributions=distributions or self.distributions,
            image=self._image(),
            image_id=self.image_id(),
        )

    def python_words(self) -> tuple[str, ...] | None:
        """The words that run a python where the engine is installed, in its container if it is an
        image, to be called with `python_env`; None where the launch names none.

        Raises EngineError where the study names no way to launch.
        """
        return python_words(self.launch_words(), self.python_env(), self._image())

    def python_env(self) -> dict[str, str]:
        """The study's variables for that python, on top of the inherited environment; those that
        refer to variables that are not set are left out. Raises EngineError."""
        env = self._checked_env().items()
        known = {name: resolve(value) for name, value in env if not unset_references([value])}
        return for_client(known) if self._image() is not None else known

    def image_id(self) -> str | None:
        """The content of its image, as a digest; None without one, and where it is not here or
        the runtime does not answer."""
        image = self._image()
        try:
            return Runtime.here(image.runtime).image_id(image.image) if image else None
        except HostError:
            return None

    def catalogue(self) -> Catalogue | None:
        """The flags of the installed engine, asked of its own parser; those recorded of its
        version where it cannot be asked, or is not here; None where neither is there.

        The first time it takes as long as an import of the engine, up to a minute.
        """
        return self._asked() or self._recorded()

    def _asked(self) -> Catalogue | None:
        try:
            words, env, content = self.python_words(), self.python_env(), self.image_id()
        except EngineError:
            return None
        if words is None or (content is None and self._image() is not None):
            return None
        return ask(words, env, engine=self.name, distributions=self.distributions, content=content)

    def _recorded(self) -> Catalogue | None:
        version = self.version() or self.spec.engine.version
        return recorded(self.name, version) if version else None

    def preflight(self) -> list[str]:
        """What would keep this launch from starting on this machine, one sentence each."""
        try:
            program = self.launch_words()[0]
        except EngineError as exc:
            return [exc.message]
        image = self._image()
        faults = (image_faults(image) if image else program_faults(program)) + [
            f"the launch needs the variable {name}, which is not set"
            for name in unset_references(self._texts())
        ]
        return faults + ([] if faults else self.package_faults()) + self.model_faults()

    def package_faults(self) -> list[str]:
        """A sentence where the interpreter does not have the engine."""
        answer = self._installed()
        if answer is None or answer.found:
            return []
        package = self.module.partition(".")[0]
        image = self._image()
        where = f"the image {image.image}" if image else self.launch_words()[0]
        return [f"{where} has no package {package} installed"]

    def model_faults(self) -> list[str]:
        """A sentence where the model is not where the study says."""
        return model_faults(self.spec)

    def _texts(self) -> list[str]:
        flags = [value for value in self.spec.flags.values() if isinstance(value, str)]
        options = self.spec.engine.containers.options if self._image() else []
        return [self.spec.model, *flags, *self.spec.env.values(), *options]

    async def ready(self, http: "Http") -> bool:
        """True once health answers and one real generation came back with tokens."""
        return not await self.unready(http)

    async def unready(self, http: "Http") -> str:
        """Why the server is not ready, by what it answers; empty once it is."""
        try:
            status = await http.status("/health")
            if status != 200:
                return f"GET {http.base_url}/health: status {status}, expected 200"
            return "" if await self.generates(http) else "a generation brought no token"
        except HttpError as error:
            return error.message

    async def generates(self, http: "Http") -> bool:
        """Whether one generation, spoken as the load speaks, gives at least one token.

        Raises HttpError.
        """
        raise NotImplementedError

    async def effective(self, http: "Http", log: str) -> dict[str, Value]:
        """The arguments that the server runs with, by flag name. Raises HttpError."""
        raise NotImplementedError

    def overridden(self, effective: Mapping[str, Value], log: str) -> list[Override]:
        """What was passed and is otherwise in the arguments read back."""
        styles = self.spec.bool_styles
        passed = {
            name: value
            for name, value in self.flags.items()
            if value is not False or styles.get(name, "presence") != "presence"
        }
        return overrides(passed, effective, log, self.flag_aliases)

    async def facts(self, http: "Http", log: str) -> EngineFacts:
        """Version, weights, KV tokens, captured sizes. Raises HttpError."""
        raise NotImplementedError

    async def flush(self, http: "Http") -> str:
        """Have the server forget every prefix; why it did not, empty where it did."""
        return await flush(http, self.flush_path, self.flush_refused)

    def flush_refused(self, status: int, text: str) -> str:
        """Why an answer to the wish to forget is no yes; empty where it is."""
        return "" if status == OK else f"{self.flush_path}: status {status}, {text[:120]!r}"

    async def load_now(self, http: "Http") -> tuple[float, float] | None:
        """Requests running and queued, summed over ranks and replicas; None where the metrics
        do not say. Raises HttpError."""
        metrics = await http.get_text("/metrics")
        running, queued = gauges(metrics, self.metrics.running, self.metrics.queued)
        return None if running is None or queued is None else (running, queued)

    async def tokens(self, http: "Http", text: str) -> list[int] | None:
        """The ids of a text, by /tokenize, which both engines have; None where it is not there.

        Raises HttpError.
        """
        try:
            answer = await http.post_json("/tokenize", {"model": self.served_model, "prompt": text})
        except HttpStatusError:
            return None
        return token_ids(answer.get("tokens") if isinstance(answer, dict) else None, "/tokenize")
