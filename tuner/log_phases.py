"""How far a server came, read from the marks that each engine leaves in its log. Pure."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from tuner.log_lines import lines_with

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
    "KV cache size:": Stage.LOADED,
    "# GPU blocks:": Stage.LOADED,
    "Warming up model for the compilation": Stage.CAPTURING,
    "Warming up done": Stage.CAPTURED,
    "Capturing the model for CUDA graphs": Stage.CAPTURING,
    "Capturing CUDA graph": Stage.CAPTURING,
    "Graph capturing finished": Stage.CAPTURED,
}
_VLLM_READY = "Application startup complete"
_STOPPING = ("Application shutdown complete", "Shutting down", "SIGTERM received")
_SERVED = ("Decode batch", "Prefill batch", '" 200', "generation throughput:")
_PROBES = ("GET /health", "GET /metrics", "GET /v1/models", "GET /server_info", "GET /get_server")


@dataclass(frozen=True, slots=True)
class Mark:
    """A stage that begins at an offset, by the rank that said so."""

    offset: int
    stage: Stage
    rank: int | None


class Timeline:
    """The stages of a log; answers what a rank was doing at an offset."""

    def __init__(self, text: str, engine: str) -> None:
        words = {**_SGLANG, **_VLLM, **dict.fromkeys(_STOPPING, Stage.STOPPING)}
        uvicorn = Stage.CAPTURED if is_sglang(text, engine) else Stage.READY
        words[_VLLM_READY] = uvicorn
        self._text = text
        self._marks = [
            Mark(line.start, stage, line.rank)
            for line in lines_with(text, words)
            for stage in _stages_of(line.body, words)
        ]
        self._offsets = [mark.offset for mark in self._marks]
        ready = [mark.offset for mark in self._marks if mark.stage is Stage.READY]
        self.ready_at = ready[-1] if ready else -1

    def at(self, offset: int, rank: int | None = None) -> Stage | None:
        """What `rank` was doing at an offset; what anybody was doing if it left no mark."""
        before = self._marks[: bisect_right(self._offsets, offset)]
        own = [mark for mark in before if rank is not None and mark.rank == rank]
        ready = [mark for mark in before if mark.stage >= Stage.READY]
        marks = own if own and not ready else before
        if not marks:
            return Stage.SERVING if self._served_between(0, offset) else None
        last = (ready or marks)[-1]
        if last.stage is Stage.READY and self._served_between(last.offset, offset):
            return Stage.SERVING
        return last.stage

    def reached(self, offset: int) -> Stage:
        """The furthest stage that any rank had come to before an offset."""
        before = self._marks[: bisect_right(self._offsets, offset)]
        return max((mark.stage for mark in before), default=Stage.STARTING)

    def served_after(self, offset: int) -> bool:
        """Whether requests were still answered after an offset, health probes not counted."""
        return self._served_between(offset, len(self._text))

    def _served_between(self, start: int, end: int) -> bool:
        for word in _SERVED:
            at = self._text.find(word, start, end)
            while at >= 0:
                line = self._text[self._text.rfind("\n", 0, at) + 1 : at]
                if not any(probe in line for probe in _PROBES):
                    return True
                at = self._text.find(word, at + 1, end)
        return False


def is_sglang(text: str, engine: str) -> bool:
    """Whether a log is SGLang's, or of an engine that speaks as it does."""
    return engine in ("sglang", "rehearsal") or (engine != "vllm" and "server_args=" in text)


def _stages_of(body: str, words: Mapping[str, Stage]) -> list[Stage]:
    stages = [stage for word, stage in words.items() if word in body]
    return [max(stages)] if stages else []


def phase_of(log: str, engine: str) -> Phase:
    """The phase that the log says the server is in now; starting where it says nothing."""
    stage = Timeline(log, engine).at(len(log))
    return PHASES[stage or Stage.STARTING]
