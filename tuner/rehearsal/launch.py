"""A launch, phase by phase, as the engine's log tells it; then the server."""

import asyncio
import errno
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.definitions.models import Value
from tuner.definitions.surface import Phase, Surface
from tuner.definitions.validation import load
from tuner.errors import DefinitionError
from tuner.flags.sglang import parse
from tuner.flags.sglang_table import VERSION
from tuner.rehearsal import death, journal
from tuner.rehearsal.app import App
from tuner.rehearsal.behaviour import Behaviour, Resolved, resolve

NONCE = "TUNER_REHEARSAL_NONCE"
"""The variable that makes a launch's noise repeatable."""

_BACKLOG = 2048
_CAPTURE_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 160]
_GRAPH_GB, _RUNTIME_GB = 1.52, 1.03


def main(argv: Sequence[str]) -> int:
    """Launch and serve until SIGTERM; the exit is that of the engine."""
    path, rest = _surface_file(argv)
    arguments = parse(rest)
    try:
        surface = load(path, Surface)
    except DefinitionError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    nonce = os.environ.get(NONCE) or os.urandom(6).hex()
    journal.say(
        f"REHEARSAL of SGLang {VERSION}: behaves as {path} says, {surface.time_scale:g} surface"
        f" seconds in one second, at most {surface.max_events_per_s:g} events a second, launch"
        f" {nonce}. Nothing measured here is a benchmark."
    )
    resolved = resolve(surface, arguments, os.environ)
    settings: dict[str, Value] = {**os.environ, **resolved.arguments}
    behaviour = Behaviour(surface, settings, nonce)
    _Launch(behaviour, resolved).run()
    return asyncio.run(_serve(behaviour, resolved.arguments))


def _surface_file(argv: Sequence[str]) -> tuple[Path, list[str]]:
    if len(argv) < 2 or argv[0] != "--surface":
        sys.stderr.write("usage: python -m tuner.rehearsal --surface FILE <flags of SGLang>\n")
        sys.exit(2)
    return Path(argv[1]), list(argv[2:])


class _Launch:
    """All that comes before the port is open."""

    def __init__(self, behaviour: Behaviour, resolved: Resolved) -> None:
        self._behaviour = behaviour
        self._surface = behaviour.surface
        self._resolved = resolved
        self._arguments = resolved.arguments
        self._free_gb = self._surface.memory.gpu_gb - _RUNTIME_GB
        self._ranks = range(int(self._arguments.get("tp-size") or 1))

    def run(self) -> None:
        """Go through the phases; may not return."""
        startup = self._surface.startup
        self._enter("arguments")
        for warning in self._resolved.warnings:
            journal.say(f"WARNING: {warning}")
        journal.say(journal.server_args(self._arguments))
        self._all("Init torch distributed begin.")
        self._enter("distributed")
        self._pass(startup.distributed_s)
        self._all("Init torch distributed ends. mem usage=1.03 GB")
        for _ in self._behaviour.matching(self._surface.orphans):
            journal.say(f"scheduler left behind, pid={death.leave_orphan()}")
        self._weights(startup.weights_s)
        self._kv_cache(startup.kv_cache_s)
        if not self._arguments["disable-cuda-graph"]:
            self._graphs(startup.graphs_s)
        memory = self._surface.memory
        journal.say(
            f"max_total_num_tokens={memory.kv_tokens},"
            f" chunked_prefill_size={self._arguments['chunked-prefill-size']},"
            f" max_running_requests={self._behaviour.pool},"
            f" available_gpu_mem={self._free_gb:.2f} GB",
            rank=0,
        )

    def _weights(self, takes_s: float) -> None:
        self._all(f"Load weight begin. avail mem={self._free_gb:.2f} GB")
        self._enter("weights")
        self._pass(takes_s)
        weight_gb = self._behaviour.weight_gb()
        self._free_gb -= weight_gb
        self._all(
            f"Load weight end. elapsed={takes_s:.2f} s, type={self._surface.architecture},"
            f" dtype=torch.bfloat16, avail mem={self._free_gb:.2f} GB,"
            f" mem usage={weight_gb:.2f} GB."
        )

    def _kv_cache(self, takes_s: float) -> None:
        self._enter("kv-cache")
        self._pass(takes_s)
        cache_gb = 0.6 * self._free_gb
        self._free_gb -= cache_gb
        self._all(
            "KV Cache is allocated. dtype: torch.bfloat16,"
            f" #tokens: {self._surface.memory.kv_tokens}, KV size: {cache_gb:.2f} GB"
        )
        self._all(f"Memory pool end. avail mem={self._free_gb:.2f} GB")

    def _graphs(self, takes_s: float) -> None:
        self._all(
            "Capture cuda graph begin. This can take up to several minutes. avail mem="
            f"{self._free_gb:.2f} GB"
        )
        journal.say(f"Capture cuda graph bs {_CAPTURE_SIZES}", rank=0)
        self._enter("graphs")
        self._pass(takes_s)
        self._free_gb -= _GRAPH_GB
        self._all(
            f"Capture cuda graph end. Time elapsed: {takes_s:.2f} s. mem usage={_GRAPH_GB:.2f} GB."
            f" avail mem={self._free_gb:.2f} GB."
        )

    def _enter(self, phase: Phase) -> None:
        if hangs(phase, self._behaviour):
            death.stand_still()

    def _pass(self, surface_s: float) -> None:
        time.sleep(surface_s / self._surface.time_scale)

    def _all(self, text: str) -> None:
        for rank in self._ranks:
            journal.say(text, rank=rank)


def hangs(phase: Phase, behaviour: Behaviour) -> bool:
    """Enter a phase: print what means nothing, die where it is due, else say whether it is the
    last one."""
    surface = behaviour.surface
    for chatter in behaviour.matching(surface.chatter):
        if chatter.at == phase:
            journal.raw(chatter.log)
    for crash in behaviour.matching(surface.crashes):
        if crash.at == phase:
            death.die_launching(crash, surface.time_scale)
    return any(hang.at == phase for hang in behaviour.matching(surface.hangs))


async def _serve(behaviour: Behaviour, arguments: Mapping[str, Value]) -> int:
    loop = asyncio.get_running_loop()
    _raise_descriptor_limit()
    app = App(behaviour, arguments)
    host, port = str(arguments["host"]), int(arguments["port"] or 0)
    journal.raw(
        f"INFO:     Started server process [{os.getpid()}]\n"
        "INFO:     Waiting for application startup."
    )
    try:
        server = await loop.create_server(app.connection, host, port, backlog=_BACKLOG)
    except OSError as exc:
        if exc.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        journal.raw(
            f"ERROR:    [Errno {exc.errno}] error while attempting to bind on address"
            f" ('{host}', {port}): {os.strerror(exc.errno).lower()}"
        )
        return 1
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    journal.raw(
        "INFO:     Application startup complete.\n"
        f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)"
    )
    if not hangs("warmup", behaviour):
        warmup_s = behaviour.surface.startup.warmup_s / behaviour.surface.time_scale
        loop.call_later(warmup_s, _make_ready, app)
    await stopped.wait()
    journal.say("Gracefully exiting...")
    server.close()
    return 0


def _make_ready(app: App) -> None:
    app.ready = True
    journal.say("The server is fired up and ready to roll!")
    gc.freeze()


def _raise_descriptor_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
