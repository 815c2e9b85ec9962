"""SGLang's names: its flags, endpoints, metrics and log lines."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.definitions.models import Value
from tuner.engines.base import EngineFacts
from tuner.engines.common import GENERATION_TIMEOUT_S, PROBE_TOKENS, CommonEngine
from tuner.engines.metric_names import MetricNames
from tuner.engines.readback import as_flags, last_match, whole
from tuner.engines.scoring import BEST, GREEDY, SCORING_TIMEOUT_S, listed_scores, token_ids
from tuner.errors import HttpProtocolError, HttpStatusError
from tuner.flags.sglang import FLAGS
from tuner.http.exposition import number
from tuner.measuring.fidelity import TokenScore

if TYPE_CHECKING:
    from tuner.http.client import Http
    from tuner.load import Api

SEED = 1
DP_ATTENTION_PORTS = 2
"""Which of the extra ports is the first of those that DP attention counts up from."""

_INFO_PATHS = ("/server_info", "/get_server_info")
_NOT_ARGUMENTS = frozenset(
    {
        *("status", "version", "startup_time", "internal_states", "kv_events", "load"),
        *("max_total_num_tokens", "max_req_input_len", "model_config", "custom_sigquit_handler"),
        *("last_gen_throughput", "memory_usage", "instance_id"),
    }
)
"""What the server's answer holds beside its arguments."""
_OF_THE_LAUNCH = frozenset(
    {"host", "port", "nccl-port", "dist-init-addr", "enable-metrics", "grpc-port"}
)
"""Arguments that the tuner sets, or that are another in each launch."""
_WEIGHTS = re.compile(r"Load weight end\..*?mem usage=([\d.]+) ?GB")
_KV_TOKENS = re.compile(r"max_total_num_tokens=(\d+)")
_CAPTURED = re.compile(
    r"Capture (?:cuda graph bs |target decode .*?begin\..*?\bbs=)\[([\d, ]*)\]", re.IGNORECASE
)


class SGLangEngine(CommonEngine):
    """`python -m sglang.launch_server` and what it answers."""

    name = "sglang"
    api: "Api" = "generate"
    module = "sglang.launch_server"
    distributions = ("sglang",)
    usual_port = 30000
    model_flag = "model-path"
    list_flags = frozenset(
        {
            *(flag.name for flag in FLAGS.values() if flag.several),
            *("cuda-graph-bs-decode", "cuda-graph-bs-prefill"),
        }
    )
    flag_aliases = {flag.name: flag.aliases for flag in FLAGS.values() if flag.aliases}
    withheld_flags = frozenset(
        {
            *("host", "port", "nccl-port", "dist-init-addr", "enable-metrics"),
            *("api-key", "admin-api-key"),
            *("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-keyfile-password"),
        }
    )
    withheld_env = frozenset[str]()
    metrics = MetricNames(
        running="sglang:num_running_reqs",
        queued="sglang:num_queue_reqs",
        kv_usage=("sglang:token_usage",),
        preempted=("sglang:num_retracted_requests_total",),
        looked_up=("sglang:prompt_tokens_total",),
        found=("sglang:cached_tokens_total",),
    )
    flush_path = "/flush_cache"

    def injected_flags(
        self, host: str, port: int, extra_ports: tuple[int, ...]
    ) -> Mapping[str, Value]:
        """Address, metrics, seed, and the ports that it opens for itself."""
        flags: dict[str, Value] = {"host": host, "port": port, "enable-metrics": True}
        if self.flags.get("random-seed") is None:
            flags["random-seed"] = SEED
        if extra_ports:
            flags["nccl-port"] = extra_ports[0]
        if self.flags.get("enable-dp-attention") and len(extra_ports) >= DP_ATTENTION_PORTS:
            flags["dist-init-addr"] = f"{host}:{extra_ports[1]}"
        return flags

    def gpus_needed(self) -> int:
        """Tensor x pipeline, times the replicas where data parallel means replicas.

        With DP attention its ranks lie within tensor parallel, as those of DWDP do, which turns it
        on; expert, context and MoE data parallel always do (SGLang's `data_parallel_controller`).
        """
        width = self.asked_size("tp-size", "tensor-parallel-size", "tp")
        depth = self.asked_size("pp-size", "pipeline-parallel-size", "pp")
        replicas = self.asked_size("dp-size", "data-parallel-size", "dp")
        within = self.flags.get("enable-dp-attention") or self.asked_size("dwdp-size") > 1
        return width * depth * (1 if within else replicas)

    async def generates(self, http: "Http") -> bool:
        """One token through /generate. Raises HttpError."""
        payload = {
            "input_ids": list(PROBE_TOKENS),
            "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
        }
        answer = await http.post_json("/generate", payload, timeout_s=GENERATION_TIMEOUT_S)
        return bool(_inner(answer, "meta_info").get("completion_tokens", 0))

    async def effective(self, http: "Http", log: str) -> dict[str, Value]:
        """The resolved arguments; where the scheduler changed one later, its word counts.

        Raises HttpError.
        """
        info = await self.server_info(http)
        arguments = {name: info[name] for name in info.keys() - _NOT_ARGUMENTS}
        later = _first_state(info)
        arguments |= {name: later[name] for name in later.keys() & arguments.keys()}
        left_out = set(_OF_THE_LAUNCH)
        if self.flags.get("random-seed") is None:
            left_out.add("random-seed")
        flags = as_flags(arguments)
        return {name: value for name, value in flags.items() if name not in left_out}

    async def facts(self, http: "Http", log: str) -> EngineFacts:
        """From the server's own state; from the log where an older one does not say.

        Raises HttpError.
        """
        info = await self.server_info(http)
        memory = _inner(_first_state(info), "memory_usage")
        return EngineFacts(
            version=_text(info.get("version")),
            weight_gb_per_gpu=number(memory.get("weight")) or number(_found(_WEIGHTS, log)),
            kv_tokens=whole(info.get("max_total_num_tokens") or _found(_KV_TOKENS, log)),
            captured_sizes=_sizes(log),
        )

    async def continuation(
        self, http: "Http", prompt: Sequence[int], tokens: int, timeout_s: float
    ) -> list[int]:
        """By /generate, which tells the ids of its output. Raises HttpError."""
        asked = {"input_ids": list(prompt), "sampling_params": {"max_new_tokens": tokens, **GREEDY}}
        answer = await http.post_json("/generate", asked, timeout_s=timeout_s)
        return token_ids(
            answer.get("output_ids") if isinstance(answer, dict) else None, "/generate"
        )

    async def scores(
        self, http: "Http", prompt: Sequence[int], output: Sequence[int]
    ) -> list[TokenScore]:
        """By /generate with `return_logprob` from the prompt's last token on, which has no score
        itself. Raises HttpError."""
        asked = {
            "input_ids": [*prompt, *output],
            "sampling_params": {"max_new_tokens": 1, **GREEDY},
            "return_logprob": True,
            "logprob_start_len": max(0, len(prompt) - 1),
            "top_logprobs_num": BEST,
        }
        answer = await http.post_json("/generate", asked, timeout_s=SCORING_TIMEOUT_S)
        told = _inner(answer, "meta_info")
        said, likeliest = told.get("input_token_logprobs"), told.get("input_top_logprobs")
        return listed_scores(said, likeliest, output)

    async def server_info(self, http: "Http") -> dict[str, Any]:
        """What the server says of itself, under the newer or the older path. Raises HttpError."""
        newer, older = _INFO_PATHS
        try:
            info = await http.get_json(newer)
        except HttpStatusError as exc:
            if exc.status != 404:
                raise
            info = await http.get_json(older)
        if not isinstance(info, dict):
            raise HttpProtocolError(
                f"{newer}: found {type(info).__name__}, expected the server's arguments"
            )
        return info


def _first_state(info: Mapping[str, Any]) -> dict[str, Any]:
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else {}
    return first if isinstance(first, dict) else {}


def _inner(answer: Any, name: str) -> dict[str, Any]:
    value = answer.get(name) if isinstance(answer, dict) else None
    return value if isinstance(value, dict) else {}


def _found(pattern: re.Pattern[str], log: str) -> str | None:
    match = last_match(pattern, log)
    return match[1] if match else None


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _sizes(log: str) -> list[int] | None:
    found = _found(_CAPTURED, log)
    return [size for text in found.split(",") if (size := whole(text))] if found else None
