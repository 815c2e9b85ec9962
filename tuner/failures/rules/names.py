"""One knob, many spellings: what engines and their versions call the same flag."""

from collections.abc import Mapping

CONCEPTS: Mapping[str, tuple[str, ...]] = {
    "memory": ("mem-fraction-static", "gpu-memory-utilization", "VLLM_CPU_KVCACHE_SPACE"),
    "running": ("max-running-requests", "max-num-seqs"),
    "chunk": ("chunked-prefill-size", "max-num-batched-tokens", "max-prefill-tokens"),
    "context": ("context-length", "max-model-len"),
    "graph-size": (
        "cuda-graph-max-bs",
        "max-cudagraph-capture-size",
        "cuda-graph-bs",
        "cuda-graph-max-bs-decode",
        "cuda-graph-bs-decode",
        "cudagraph-capture-sizes",
    ),
    "tp": ("tp-size", "tensor-parallel-size", "tp"),
    "dp": ("dp-size", "data-parallel-size", "dp"),
    "pp": ("pp-size", "pipeline-parallel-size", "pp"),
    "ep": ("ep-size", "enable-expert-parallel", "ep"),
    "speculative": (
        "speculative-algorithm",
        "speculative-config",
        "speculative-algo",
        "speculative-eagle-topk",
        "speculative-num-steps",
    ),
    "lora": ("lora-paths", "enable-lora", "lora-modules", "max-loras-per-batch", "lora-backend"),
    "hicache": ("hicache-size", "hicache-ratio", "enable-hierarchical-cache"),
    "kv-dtype": ("kv-cache-dtype",),
    "moe-runner": ("moe-runner-backend", "moe-backend"),
    "a2a": ("moe-a2a-backend", "all2all-backend"),
    "page": ("page-size", "block-size"),
    "piecewise": ("enable-piecewise-cuda-graph", "cuda-graph-backend-prefill"),
    "compile": (
        "enable-torch-compile",
        "compilation-config",
        "optimization-level",
        "torch-compile-max-bs",
    ),
    "autotune": ("enable-flashinfer-autotune", "disable-flashinfer-autotune"),
    "load-format": ("load-format",),
}
"""A knob → its flags: SGLang's first, vLLM's second, then further spellings of either."""


def spellings(name: str) -> tuple[str, ...]:
    """The flags that a concept or a flag stands for."""
    return CONCEPTS.get(name, (name,))


def flag_of(concept: str, engine: str) -> str:
    """How the engine spells a concept, with its dashes; both where the engine is not known."""
    names = spellings(concept)
    if len(names) == 1 or engine in ("sglang", "rehearsal"):
        return _dashed(names[0])
    if engine == "vllm":
        return _dashed(names[1])
    return f"{_dashed(names[0])} or {_dashed(names[1])}"


def _dashed(name: str) -> str:
    return name if name.isupper() else f"--{name}"
