"""How engines are started, and which of their flags stand alone, have another name, or take several
words: facts of the engines' own parsers (SGLang 0.5.9 and 0.5.17, vLLM 0.8 to 0.32). Pure."""

import re
from collections.abc import Mapping

from tuner.engines.sglang import SGLangEngine
from tuner.engines.vllm import VLLMEngine
from tuner.flags.aliases import one_name
from tuner.flags.sglang import FLAGS
from tuner.starting.pasted import EngineName

MODULES: Mapping[str, EngineName] = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
}
"""`python -m MODULE` → the engine."""

SCRIPTS: Mapping[str, EngineName] = {
    "launch_server.py": "sglang",
    "vllm/entrypoints/openai/api_server.py": "vllm",
}
"""`python .../SCRIPT` → the engine."""

PROGRAMS: Mapping[str, EngineName] = {"sglang": "sglang", "vllm": "vllm"}
"""`PROGRAM serve` → the engine."""

IMAGES_THAT_SERVE = re.compile(r"(^|/)vllm[\w.-]*(/vllm[\w.-]*)?$|(^|/)vllm-openai[\w.-]*$")
"""Images whose entry point is an engine: arguments follow them at once."""

OTHERS: Mapping[str, str] = {
    "trtllm-serve": "TensorRT-LLM",
    "tritonserver": "Triton",
    "text-generation-launcher": "Text Generation Inference",
    "llama-server": "llama.cpp",
    "ollama": "Ollama",
    "lmdeploy": "LMDeploy",
    "mlc_llm": "MLC LLM",
    "aphrodite": "Aphrodite",
    "tabbyapi": "TabbyAPI",
    "llamafile": "llamafile",
    "swift": "ms-swift",
    "ktransformers": "KTransformers",
}
"""Programs that serve models and cannot be tuned here."""

OTHER_MODULES: Mapping[str, str] = {
    "sglang_router.launch_router": "SGLang's router",
    "sglang_router.launch_server": "SGLang's router with its workers",
    "vllm.entrypoints.api_server": "vLLM's old demonstration server",
    "fastchat.serve.vllm_worker": "a FastChat worker",
    "fastchat.serve.sglang_worker": "a FastChat worker",
    "mlc_llm": "MLC LLM",
    "lmdeploy": "LMDeploy",
    "tensorrt_llm.commands.serve": "TensorRT-LLM",
    "llama_cpp.server": "llama.cpp",
    "dynamo.sglang": "Dynamo",
    "dynamo.vllm": "Dynamo",
}

_VLLM_SHORT: Mapping[str, str] = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "dcp": "decode-context-parallel-size",
    "dpl": "data-parallel-size-local",
    "dpa": "data-parallel-address",
    "dpr": "data-parallel-start-rank",
    "dpn": "data-parallel-rank",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "ep": "enable-expert-parallel",
    "asc": "api-server-count",
    "q": "quantization",
    "n": "nnodes",
    "r": "node-rank",
    "cc": "compilation-config",
    "ac": "attention-config",
    "sc": "speculative-config",
    "O": "optimization-level",
}
"""What one dash means; two dashes have only whole names."""

_VLLM_ALONE = frozenset(
    [
        "allow-credentials",
        "async-scheduling",
        "cudagraph-metrics",
        "enforce-eager",
        "fully-sharded-loras",
        "grpc",
        "headless",
        "interleave-mm-strings",
        "kv-cache-metrics",
        "kv-sharing-fast-prefill",
        "language-model-only",
        "log-error-stack",
        "mm-encoder-only",
        "numa-bind",
        "ray-workers-use-nsight",
        "return-tokens-as-token-ids",
        "skip-mm-profiling",
        "skip-tokenizer-init",
        "trust-remote-code",
        "trust-request-chat-template",
        "use-tqdm-on-load",
        "calculate-kv-scales",
        "multi-step-stream-outputs",
        "use-v2-block-manager",
        "exclude-tools-when-tool-choice-none",
        "data-parallel-external-lb",
        "data-parallel-hybrid-lb",
    ]
)
_SGLANG_ALONE = frozenset(flag.name for flag in FLAGS.values() if flag.kind is None)
_SWITCH = re.compile(r"(enable|disable|no|skip|enforce-disable)-.+")

SIZES = frozenset(
    {
        *("tp-size", "pp-size", "dp-size"),
        *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
    }
)
"""Flags that say over how many GPUs a server is spread."""

LIST_FLAGS: Mapping[EngineName, frozenset[str]] = {
    "sglang": SGLangEngine.list_flags,
    "vllm": VLLMEngine.list_flags,
}
"""Flags that take several words, as the engine spells them."""

MODEL_FLAGS: Mapping[EngineName, str] = {
    "sglang": SGLangEngine.model_flag,
    "vllm": VLLMEngine.model_flag,
}


def whole_name(engine: EngineName, name: str, dashes: int) -> str:
    """The one name of a flag written with this many dashes; what is no alias stays as it is."""
    if engine == "sglang":
        return "model-path" if name == "model" else one_name(engine, name)
    head, dot, rest = name.partition(".")
    return (_VLLM_SHORT.get(head, head) if dashes == 1 else head) + dot + rest


def stands_alone(engine: EngineName, name: str) -> bool:
    """Whether a flag is known to take no value."""
    if engine == "sglang" and name in FLAGS:
        return name in _SGLANG_ALONE
    alone = _SGLANG_ALONE if engine == "sglang" else _VLLM_ALONE
    return name in alone or _SWITCH.fullmatch(name) is not None
