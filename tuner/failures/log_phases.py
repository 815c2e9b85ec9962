"""How far a server came, read from the marks that each engine leaves in its log. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from tuner.failures.log_lines import Lines, condensed

Phase = Literal["starting", "loading", "capturing", "ready", "serving", "stopping"]


class Stage(IntEnum):
    """A finer phase: the same words mean different faults before and after each of these."""

    STARTING = 0
    LOADING = 1
    LOADED = 2
    CAPTURING = 3
    CAPTURED = 4
    READY = 5
    SERVING = 6
    STOPPING = 7


PHASES: Mapping[Stage, Phase] = {
    Stage.STARTING: "starting",
    Stage.LOADING: "loading",
    Stage.LOADED: "loading",
    Stage.CAPTURING: "capturing",
    Stage.CAPTURED: "capturing",
    Stage.READY: "ready",
    Stage.SERVING: "serving",
    Stage.STOPPING: "stopping",
}
STAGES: Mapping[Phase, Stage] = {
    "starting": Stage.STARTING,
    "loading": Stage.LOADING,
    "capturing": Stage.CAPTURING,
    "ready": Stage.READY,
    "serving": Stage.SERVING,
    "stopping": Stage.STOPPING,
}

_SGLANG: Mapping[str, Stage] = {
    "Init torch distributed begin": Stage.STARTING,
    "Load weight begin": Stage.LOADING,
    "checkpoint shards:": Stage.LOADING,
    "Load weight end": Stage.LOADED,
    "KV Cache is allocated": Stage.LOADED,
    "Memory pool end": Stage.LOADED,
    "uda graph begin": Stage.CAPTURING,
    "UDA graph begin": Stage.CAPTURING,
    "Capturing batches (": Stage.CAPTURING,
    "uda graph end": Stage.CAPTURED,
    "UDA graph end": Stage.CAPTURED,
    "The server is fired up and ready to roll": Stage.READY,
}
_VLLM: Mapping[str, Stage] = {
    "Starting to load model": Stage.LOADING,
    "Loading model weights took": Stage.LOADED,
    "Model loading took": Stage.LOADED,
    "Loading weights took": Stage.LOADED,
    "KV cache size:": Stage.LOADED,
    "# GPU blocks:": Stage.LOADED,
    "Warming up model for the compilation": Stage.CAPTURING,
    "Warming up done": Stage.CAPTURED,
    "Capturing the model for CUDA graphs": Stage.CAPTURING,
    "Capturing CUDA graph": Stage.CAPTURING,
    "Graph capturing finished": Stage.CAPTURED,
}
_VLLM_READY = "Application startup complete"
ASKED = ("SIGTERM received", "Gracefully exiting", "[shutdown] API server: shutdown triggered")
"""What a server says when it was told to stop; it may call its own end an error after that."""
_STOPPING = (*ASKED, "Application shutdown complete", "Shutting down")
_WORDS_CHARS = 30
_SERVED = ("Decode batch", "Prefill batch", '" 200', "generation throughput:")
_IDLE = (
    "generation throughput: 0.0",
    "GET /health",
    "GET /metrics",
    "GET /v1/models",
    "GET /server_info",
    "GET /get_server",
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A stage that begins at an offset, by the rank that said so."""

    offset: int
    stage: Stage
    rank: int | None


class Timeline:
    """The stages of a log; answers what a rank was doing at an offset."""

    def __init__(self, text: str, engine: str, lines: Lines | None = None) -> None:
        words = {**_SGLANG, **_VLLM, **dict.fromkeys(_STOPPING, Stage.STOPPING)}
        uvicorn = Stage.CAPTURED if is_sglang(text, engine) else Stage.READY
        words[_VLLM_READY] = uvicorn
        self._text = text
        self._marks = [
            Mark(line.start, stage, line.rank)
            for line in (lines or Lines(text)).having(words)
            for stage in _stages_of(line.body, words)
        ]
        self._offsets = [mark.offset for mark in self._marks]
        ready = [mark.offset for mark in self._marks if mark.stage is Stage.READY]
        self.ready_at = ready[-1] if ready else -1
        self._first_served = _served(text, max(self.ready_at, 0), text.find)
        self._last_served = _served(text, max(self.ready_at, 0), text.rfind)

    def at(self, offset: int, rank: int | None = None) -> Stage | None:
        """What `rank` was doing at an offset; what anybody was doing if it left no mark."""
        before = self._marks[: bisect_right(self._offsets, offset)]
        own = [mark for mark in before if rank is not None and mark.rank == rank]
        ready = [mark for mark in before if mark.stage >= Stage.READY]
        marks = own if own and not ready else before
        if not marks:
            return Stage.SERVING if self._served_before(offset) else None
        last = (ready or marks)[-1]
        if last.stage is Stage.READY and self._served_before(offset):
            return Stage.SERVING
        return last.stage

    def reached(self, offset: int) -> Stage:
        """The furthest stage that any rank had come to before an offset."""
        before = self._marks[: bisect_right(self._offsets, offset)]
        return max((mark.stage for mark in before), default=Stage.STARTING)

    def served_after(self, offset: int) -> bool:
        """Whether requests were still answered after an offset, health probes not counted."""
        return self._last_served > offset

    def _served_before(self, offset: int) -> bool:
        return 0 <= self._first_served < offset


def _served(text: str, start: int, find: Callable[[str, int, int], int]) -> int:
    """The first (or by `rfind` the last) line after `start` that answers a request, or -1."""
    forward = find == text.find
    found: list[int] = []
    for word in _SERVED:
        low, high = start, len(text)
        at = find(word, low, high)
        while at >= 0:
            line = text[text.rfind("\n", 0, at) + 1 : at + _WORDS_CHARS]
            if not any(idle in line for idle in _IDLE):
                found.append(at)
                break
            low, high = (at + 1, high) if forward else (low, at)
            at = find(word, low, high)
    return (min(found) if forward else max(found)) if found else -1


def is_sglang(text: str, engine: str) -> bool:
    """Whether a log is SGLang's, or of an engine that speaks as it does."""
    return engine in ("sglang", "rehearsal") or (engine != "vllm" and "server_args=" in text)


def _stages_of(body: str, words: Mapping[str, Stage]) -> list[Stage]:
    stages = [stage for word, stage in words.items() if word in body]
    return [max(stages)] if stages else []


def phase_of(log: str, engine: str) -> Phase:
    """The phase that the log says the server is in now; starting where it says nothing."""
    text = condensed(log)
    stage = Timeline(text, engine).at(len(text))
    return PHASES[stage or Stage.STARTING]
