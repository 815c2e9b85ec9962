"""What the contract suite knows of each engine: a study's launch, and a server that answers.

The texts are shortened from what the engines print and answer.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tuner.definitions.models import EngineDefinition, Value
from tuner.engines.base import EngineFacts, LaunchSpec

VLLM_LOG = """\
(APIServer pid=7) INFO 11-30 19:11:05 [api_utils.py:286] non-default args: {'host': '127.0.0.1', \
'port': 18200, 'model': 'models/dense', 'max_model_len': 1024, 'enforce_eager': True, \
'api_key': ['sk-very-secret'], 'served_model_name': ['m'], 'max_num_seqs': 4, \
'compilation_config': {'mode': <CompilationMode.NONE: 0>, 'splitting_ops': ['a,b', "it's"]}}
(APIServer pid=7) INFO 11-30 19:11:18 [scheduler.py:307] Chunked prefill is enabled with \
max_num_batched_tokens=512.
(EngineCore pid=8) INFO 11-30 19:11:30 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with \
config: model='models/dense', speculative_config=None, dtype=torch.bfloat16, max_seq_len=1024, \
tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, \
enforce_eager=True, observability_config=ObservabilityConfig(a='x', b=[1, 2]), seed=0, \
served_model_name=m, enable_prefix_caching=True, enable_chunked_prefill=True, \
compilation_config={'mode': <CompilationMode.NONE: 0>, 'cudagraph_capture_sizes': [1, 2, 4]}
(Worker pid=9) INFO 11-30 19:11:44 [gpu_model_runner.py:5150] Model loading took 14.25 GiB memory \
and 3.1 seconds
(EngineCore pid=8) INFO 11-30 19:11:45 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, \
Maximum concurrency for 1,024 tokens per request: 512.00x
"""
VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:cache_config_info{block_size="128",cache_dtype="auto",gpu_memory_utilization="0.92"} 1.0
"""
SGLANG_INFO: Mapping[str, Any] = {
    "model_path": "models/dense",
    "host": "127.0.0.1",
    "port": 30000,
    "nccl_port": 30001,
    "dist_init_addr": None,
    "random_seed": 1,
    "enable_metrics": True,
    "api_key": "sk-very-secret",
    "tp_size": 8,
    "ep_size": 1,
    "moe_a2a_backend": "flashinfer",
    "disable_cuda_graph": False,
    "cuda_graph_config": {"decode": {"backend": "full", "bs": [1, 2, 4]}},
    "schedule_conservativeness": 1.0,
    "status": "ready",
    "max_total_num_tokens": 400000,
    "max_req_input_len": 8187,
    "startup_time": 71.3,
    "version": "0.5.17",
    "kv_events": None,
    "internal_states": [
        {
            "ep_size": 8,
            "last_gen_throughput": 83.1,
            "memory_usage": {"weight": 59.5, "kvcache": 20.1, "token_capacity": 400000},
        }
    ],
}
SGLANG_LOG = """\
[2026-01-01 00:00:00 TP0] Load weight end. elapsed=9.1 s, type=Glm, avail mem=33.1 GB, \
mem usage=60.89 GB.
[2026-01-01 00:00:09 TP0] Capture target decode CUDA graph begin. backend=full, \
num_tokens_per_req=1, bs=[1, 2, 4, 8], avail mem=12.50 GB
[2026-01-01 00:00:19 TP0] max_total_num_tokens=399999, chunked_prefill_size=8192
"""
SGLANG_METRICS = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 237.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 787.0
"""


@dataclass(slots=True)
class Answers:
    """What the server answers by path, as (status, body), and what it was asked to generate."""

    routes: dict[str, tuple[int, Any]]
    posted: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCase:
    """One engine as the suite sees it: flags to ask for, and what its server would say."""

    name: str
    definition: EngineDefinition
    model_flag: str
    seed_flag: str
    flags: Mapping[str, Value]
    env: Mapping[str, str]
    size_flag: str
    replica_flag: str
    key_flag: str
    list_flag: str
    generation_path: str
    log: str
    routes: Mapping[str, tuple[int, Any]]
    tokens_given: Mapping[int, Any]
    effective: Mapping[str, Value]
    facts: EngineFacts
    load: tuple[float, float]

    def spec(self, folder: Path, **changes: Any) -> LaunchSpec:
        """The launch of a study in that folder."""
        values = {
            "engine": self.definition,
            "model": "some/model",
            "folder": folder,
            "flags": dict(self.flags),
            "env": dict(self.env),
        }
        return LaunchSpec(**{**values, **changes})

    def launched_by(self, **ways: Any) -> EngineDefinition:
        """The engine, launched in another way."""
        unset = {"python": None, "command": None}
        return self.definition.model_copy(update={**unset, **ways})

    def answers(self) -> Answers:
        """A server that is ready."""
        return Answers(routes=dict(self.routes))


VLLM = EngineCase(
    name="vllm",
    definition=EngineDefinition(name="vllm", python="python3"),
    model_flag="model",
    seed_flag="seed",
    flags={"max-model-len": 1024, "enforce-eager": True, "gpu-memory-utilization": 0.9},
    env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    size_flag="tensor-parallel-size",
    replica_flag="data-parallel-size",
    key_flag="api-key",
    list_flag="cudagraph-capture-sizes",
    generation_path="/v1/completions",
    log=VLLM_LOG,
    routes={
        "/health": (200, ""),
        "/v1/completions": (200, {"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}}),
        "/metrics": (200, VLLM_METRICS),
        "/version": (200, {"version": "0.32.0"}),
    },
    tokens_given={n: {"choices": [], "usage": {"completion_tokens": n}} for n in (0, 1)},
    effective={
        "model": "models/dense",
        "max-model-len": 1024,
        "max-num-seqs": 4,
        "enforce-eager": True,
        "enable-prefix-caching": True,
        "enable-chunked-prefill": True,
        "max-num-batched-tokens": 512,
        "block-size": 128,
        "dtype": "bfloat16",
        "tensor-parallel-size": 1,
        "compilation-config.splitting_ops": "a,b it's",
    },
    facts=EngineFacts(
        version="0.32.0", weight_gb_per_gpu=14.25, kv_tokens=524288, captured_sizes=[1, 2, 4]
    ),
    load=(7.0, 2.0),
)
SGLANG = EngineCase(
    name="sglang",
    definition=EngineDefinition(name="sglang", python="python3"),
    model_flag="model-path",
    seed_flag="random-seed",
    flags={"context-length": 8192, "disable-cuda-graph": True, "mem-fraction-static": 0.9},
    env={"SGLANG_MSCCLPP_MAX_BYTES": "4194304"},
    size_flag="tp-size",
    replica_flag="dp-size",
    key_flag="api-key",
    list_flag="cuda-graph-bs",
    generation_path="/generate",
    log=SGLANG_LOG,
    routes={
        "/health": (200, ""),
        "/generate": (200, {"text": "x", "meta_info": {"completion_tokens": 1}}),
        "/metrics": (200, SGLANG_METRICS),
        "/server_info": (200, dict(SGLANG_INFO)),
    },
    tokens_given={n: {"text": "", "meta_info": {"completion_tokens": n}} for n in (0, 1)},
    effective={
        "model-path": "models/dense",
        "tp-size": 8,
        "ep-size": 8,
        "moe-a2a-backend": "flashinfer",
        "disable-cuda-graph": False,
        "cuda-graph-config.decode.bs": "1 2 4",
        "schedule-conservativeness": 1.0,
    },
    facts=EngineFacts(
        version="0.5.17", weight_gb_per_gpu=59.5, kv_tokens=400000, captured_sizes=[1, 2, 4, 8]
    ),
    load=(237.0, 787.0),
)
REHEARSAL = replace(
    SGLANG,
    name="rehearsal",
    definition=EngineDefinition(
        name="rehearsal",
        python="python3",
        surface=str(Path(__file__).parent.parent / "studies" / "quickstart" / "surface.yaml"),
    ),
)


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """A real server on a port of this machine that gives these answers; its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer()

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answers.posted.append((self.path, json.loads(body)))
            self._answer()

        def _answer(self):
            status, body = answers.routes.get(self.path, (404, {"detail": "Not Found"}))
            sent = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *args):
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
