"""Flags that an engine has had under another name. Pure.

What a version calls a flag is looked up among what it declares, so that one table serves all: the
first name that it has is the one that is meant. Sources: what the parsers of SGLang 0.5.2, 0.5.17
and 0.5.23 say of their deprecated flags, read both ways; what the parsers of 0.5.6 and 0.5.9
declare in their place; vLLM 0.32's parser and the release notes of the versions before it.
"""

from collections.abc import Container, Mapping

RENAMED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "sglang": {
        "cuda-graph-max-bs": ("cuda-graph-max-bs-decode",),
        "cuda-graph-bs": ("cuda-graph-bs-decode",),
        "cuda-graph-max-bs-decode": ("cuda-graph-max-bs",),
        "cuda-graph-bs-decode": ("cuda-graph-bs",),
        "disable-cuda-graph": ("cuda-graph-backend-decode=disabled",),
        "cuda-graph-backend-decode": ("disable-cuda-graph",),
        "cuda-graph-backend-prefill": ("enable-piecewise-cuda-graph",),
        "enable-piecewise-cuda-graph": ("cuda-graph-backend-prefill=tc_piecewise",),
        "enforce-piecewise-cuda-graph": ("cuda-graph-backend-prefill=tc_piecewise",),
        "disable-piecewise-cuda-graph": ("cuda-graph-backend-prefill=disabled",),
        "enable-breakable-cuda-graph": ("cuda-graph-backend-prefill=breakable",),
        "piecewise-cuda-graph-tokens": ("cuda-graph-bs-prefill",),
        "piecewise-cuda-graph-max-tokens": ("cuda-graph-max-bs-prefill",),
        "piecewise-cuda-graph-compiler": ("cuda-graph-tc-compiler",),
        "cuda-graph-max-bs-prefill": ("piecewise-cuda-graph-max-tokens",),
        "cuda-graph-bs-prefill": ("piecewise-cuda-graph-tokens",),
        "cuda-graph-tc-compiler": ("piecewise-cuda-graph-compiler",),
        "enable-flashinfer-allreduce-fusion": ("flashinfer-allreduce-fusion-backend=auto",),
        "flashinfer-allreduce-fusion-backend": ("enable-flashinfer-allreduce-fusion",),
        "enable-dp-attention": ("attn-dp-size",),
        "attn-dp-size": ("enable-dp-attention",),
        "enable-ep-moe": ("ep-size",),
        "enable-deepep-moe": ("moe-a2a-backend=deepep",),
        "enable-flashinfer-cutlass-moe": ("moe-runner-backend=flashinfer_cutlass",),
        "enable-flashinfer-cutedsl-moe": ("moe-runner-backend=flashinfer_cutedsl",),
        "enable-flashinfer-trtllm-moe": ("moe-runner-backend=flashinfer_trtllm",),
        "enable-flashinfer-mxfp4-moe": ("moe-runner-backend=flashinfer_mxfp4",),
        "enable-triton-kernel-moe": ("moe-runner-backend=triton_kernel",),
        "hybrid-kvcache-ratio": ("swa-full-tokens-ratio",),
        "stream-output": ("incremental-streaming-output",),
        "nsa-prefill-backend": ("dsa-prefill-backend",),
        "nsa-decode-backend": ("dsa-decode-backend",),
        "dsa-prefill-backend": ("nsa-prefill-backend",),
        "dsa-decode-backend": ("nsa-decode-backend",),
        "mamba-scheduler-strategy": ("mamba-radix-cache-strategy",),
        "grpc-mode": ("smg-grpc-mode",),
        "enable-prefill-context-parallel": ("enable-prefill-cp",),
        "monokernel-backend": ("enable-amd-monokernel",),
    },
    "vllm": {
        "tp": ("tensor-parallel-size",),
        "pp": ("pipeline-parallel-size",),
        "dp": ("data-parallel-size",),
        "cuda-graph-sizes": ("cudagraph-capture-sizes",),
        "guided-decoding-backend": ("structured-outputs-config",),
        "speculative-model": ("speculative-config",),
    },
}
"""By engine and by the name that is gone: the names that took its place, `=` the value that means
the same."""


def renamed(engine: str, name: str, declared: Container[str]) -> str | None:
    """What a version that declares these flags calls one that it does not have, or None."""
    for other in RENAMED.get(engine, {}).get(name, ()):
        if other.partition("=")[0] in declared:
            return other
    return None
