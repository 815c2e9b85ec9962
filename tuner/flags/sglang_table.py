"""The command line of SGLang 0.5.9 as a table.

One flag a line: `names | type | default | choices`. The first name is the flag's own, as the
resolved arguments show it; further names are aliases. A type that ends in `*` takes several
values. An empty default is null: the engine decides. `@name` stands for a list in `CHOICES`.
"""

from collections.abc import Mapping

VERSION = "0.5.9"

CHOICES: Mapping[str, str] = {
    "load": (
        "auto pt safetensors npcache dummy sharded_state gguf bitsandbytes layered flash_rl "
        "remote remote_instance fastsafetensors private"
    ),
    "quantization": (
        "awq fp8 mxfp8 gptq marlin gptq_marlin awq_marlin bitsandbytes gguf modelopt "
        "modelopt_fp8 modelopt_fp4 petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 qoq w4afp8 mxfp4 "
        "auto-round compressed-tensors modelslim quark_int4fp8_moe"
    ),
    "attention": (
        "triton torch_native flex_attention nsa cutlass_mla fa3 fa4 flashinfer flashmla "
        "trtllm_mla trtllm_mha dual_chunk_flash_attn aiter wave intel_amx ascend intel_xpu"
    ),
    "moe-runner": (
        "auto deep_gemm triton triton_kernel flashinfer_trtllm flashinfer_cutlass "
        "flashinfer_mxfp4 flashinfer_cutedsl cutlass"
    ),
    "a2a": "none deepep mooncake mori ascend_fuseep flashinfer",
    "draft-quantization": (
        "awq fp8 mxfp8 gptq marlin gptq_marlin awq_marlin bitsandbytes gguf modelopt "
        "modelopt_fp8 modelopt_fp4 petit_nvfp4 w8a8_int8 w8a8_fp8 moe_wna16 qoq w4afp8 mxfp4 "
        "auto-round compressed-tensors modelslim quark_int4fp8_moe unquant"
    ),
    "load-balance": "auto round_robin follow_bootstrap_room total_requests total_tokens",
    "fp8-gemm": "auto deep_gemm flashinfer_trtllm flashinfer_deepgemm cutlass triton aiter",
    "fp4-gemm": "auto flashinfer_cudnn flashinfer_cutlass flashinfer_trtllm",
    "hicache": "layer_first page_first page_first_direct page_first_kv_split page_head",
}

TABLE = """
model-path model | str
tokenizer-path | str
tokenizer-mode | str | auto | auto slow
tokenizer-worker-num | int | 1
skip-tokenizer-init | bool
load-format | str | auto | @load
model-loader-extra-config | str | {}
trust-remote-code | bool
context-length | int
is-embedding | bool
enable-multimodal | bool
revision | str
model-impl | str | auto
host | str | 127.0.0.1
port | int | 30000
fastapi-root-path | str
grpc-mode | bool
skip-server-warmup | bool
warmups | str
nccl-port | int
checkpoint-engine-wait-weights-before-ready | bool
dtype | str | auto | auto half float16 bfloat16 float float32
quantization | str |  | @quantization
quantization-param-path | str
kv-cache-dtype | str | auto | auto fp8_e5m2 fp8_e4m3 bf16 bfloat16 fp4_e2m1
enable-fp32-lm-head | bool
modelopt-quant | str
modelopt-checkpoint-restore-path | str
modelopt-checkpoint-save-path | str
modelopt-export-path | str
quantize-and-serve | bool
rl-quant-profile | str
mem-fraction-static | float
max-running-requests | int
max-queued-requests | int
max-total-tokens | int
chunked-prefill-size | int
prefill-max-requests | int
enable-dynamic-chunking | bool
max-prefill-tokens | int | 16384
schedule-policy | str | fcfs | lpm random fcfs dfs-weight lof priority routing-key
enable-priority-scheduling | bool
abort-on-priority-when-disabled | bool
schedule-low-priority-values-first | bool
priority-scheduling-preemption-threshold | int | 10
schedule-conservativeness | float | 1.0
page-size | int
swa-full-tokens-ratio | float | 0.8
disable-hybrid-swa-memory | bool
radix-eviction-policy | str | lru | lru lfu
enable-prefill-delayer | bool
prefill-delayer-max-delay-passes | int | 30
prefill-delayer-token-usage-low-watermark | float
prefill-delayer-forward-passes-buckets | float*
prefill-delayer-wait-seconds-buckets | float*
device | str
tp-size tensor-parallel-size | int | 1
attn-cp-size attention-context-parallel-size | int | 1
moe-dp-size moe-data-parallel-size | int | 1
pp-size pipeline-parallel-size | int | 1
pp-max-micro-batch-size | int
pp-async-batch-depth | int | 0
stream-interval | int | 1
stream-output | bool
random-seed | int
constrained-json-whitespace-pattern | str
constrained-json-disable-any-whitespace | bool
watchdog-timeout | float | 300
soft-watchdog-timeout | float
dist-timeout | int
download-dir | str
model-checksum | str
base-gpu-id | int | 0
gpu-id-step | int | 1
sleep-on-idle | bool
custom-sigquit-handler | str
log-level | str | info
log-level-http | str
log-requests | bool
log-requests-level | int | 2 | 0 1 2 3
log-requests-format | str | text | text json
log-requests-target | str*
uvicorn-access-log-exclude-prefixes | str*
crash-dump-folder | str
show-time-cost | bool
enable-metrics | bool
enable-metrics-for-all-schedulers | bool
tokenizer-metrics-custom-labels-header | str | x-custom-labels
tokenizer-metrics-allowed-custom-labels | str*
extra-metric-labels | str
bucket-time-to-first-token | float*
bucket-inter-token-latency | float*
bucket-e2e-request-latency | float*
collect-tokens-histogram | bool
prompt-tokens-buckets | str*
generation-tokens-buckets | str*
gc-warning-threshold-secs | float | 0.0
decode-log-interval | int | 40
enable-request-time-stats-logging | bool
kv-events-config | str
enable-trace | bool
otlp-traces-endpoint | str | localhost:4317
export-metrics-to-file | bool
export-metrics-to-file-dir | str
api-key | str
admin-api-key | str
served-model-name | str
weight-version | str | default
chat-template | str
hf-chat-template-name | str
completion-template | str
file-storage-path | str | sglang_storage
enable-cache-report | bool
reasoning-parser | str
tool-call-parser | str
tool-server | str
sampling-defaults | str | model | openai model
dp-size data-parallel-size | int | 1
load-balance-method | str | auto | @load-balance
dist-init-addr nccl-init-addr | str
nnodes | int | 1
node-rank | int | 0
json-model-override-args | str | {}
preferred-sampling-params | str
enable-lora | bool
enable-lora-overlap-loading | bool
max-lora-rank | int
lora-target-modules | str*
lora-paths | str*
max-loras-per-batch | int | 8
max-loaded-loras | int
lora-eviction-policy | str | lru | lru fifo
lora-backend | str | csgmv | triton csgmv ascend torch_native
max-lora-chunk-size | int | 16 | 16 32 64 128
attention-backend | str |  | @attention
prefill-attention-backend | str |  | @attention
decode-attention-backend | str |  | @attention
sampling-backend | str |  | flashinfer ascend pytorch
grammar-backend | str |  | xgrammar outlines llguidance none
mm-attention-backend | str |  | sdpa fa3 fa4 triton_attn ascend_attn aiter_attn
nsa-prefill-backend | str |  | flashmla_sparse flashmla_kv flashmla_auto fa3 tilelang aiter trtllm
nsa-decode-backend | str |  | flashmla_sparse flashmla_kv flashmla_auto fa3 tilelang aiter trtllm
fp8-gemm-backend | str | auto | @fp8-gemm
fp4-gemm-backend | str | flashinfer_cutlass | @fp4-gemm
disable-flashinfer-autotune | bool
speculative-algorithm | str |  | EAGLE EAGLE3 NEXTN STANDALONE NGRAM
speculative-draft-model-path speculative-draft-model | str
speculative-draft-model-revision | str
speculative-draft-load-format | str |  | @load
speculative-num-steps | int
speculative-eagle-topk | int
speculative-num-draft-tokens | int
speculative-accept-threshold-single | float | 1.0
speculative-accept-threshold-acc | float | 1.0
speculative-token-map | str
speculative-attention-mode | str | prefill | prefill decode
speculative-draft-attention-backend | str
speculative-moe-runner-backend | str |  | @moe-runner
speculative-moe-a2a-backend | str |  | @a2a
speculative-draft-model-quantization | str |  | @draft-quantization
speculative-ngram-min-match-window-size | int | 1
speculative-ngram-max-match-window-size | int | 12
speculative-ngram-min-bfs-breadth | int | 1
speculative-ngram-max-bfs-breadth | int | 10
speculative-ngram-match-type | str | BFS | BFS PROB
speculative-ngram-branch-length | int | 18
speculative-ngram-capacity | int
enable-multi-layer-eagle | bool
ep-size expert-parallel-size ep | int | 1
moe-a2a-backend | str | none | @a2a
moe-runner-backend | str | auto | @moe-runner
flashinfer-mxfp4-moe-precision | str | default | default bf16
enable-flashinfer-allreduce-fusion | bool
deepep-mode | str | auto | normal low_latency auto
ep-num-redundant-experts | int | 0
ep-dispatch-algorithm | str
init-expert-location | str | trivial
enable-eplb | bool
eplb-algorithm | str | auto
eplb-rebalance-num-iterations | int | 1000
eplb-rebalance-layers-per-chunk | int
eplb-min-rebalancing-utilization-threshold | float | 1.0
expert-distribution-recorder-mode | str
expert-distribution-recorder-buffer-size | int
enable-expert-distribution-metrics | bool
deepep-config | str
moe-dense-tp-size | int
elastic-ep-backend | str |  | none mooncake
mooncake-ib-device | str
max-mamba-cache-size | int
mamba-ssm-dtype | str |  | float32 bfloat16 float16
mamba-full-memory-ratio | float | 0.9
mamba-scheduler-strategy | str | auto | auto no_buffer extra_buffer
mamba-track-interval | int | 256
mamba-backend | str | triton | triton flashinfer
enable-hierarchical-cache | bool
hicache-ratio | float | 2.0
hicache-size | int | 0
hicache-write-policy | str | write_through | write_back write_through write_through_selective
hicache-io-backend | str | kernel | direct kernel kernel_ascend
hicache-mem-layout | str | layer_first | @hicache
disable-hicache-numa-detect | bool
hicache-storage-backend | str |  | file mooncake hf3fs nixl aibrix dynamic eic
hicache-storage-prefetch-policy | str | best_effort | best_effort wait_complete timeout
hicache-storage-backend-extra-config | str
hierarchical-sparse-attention-extra-config | str
enable-lmcache | bool
kt-weight-path | str
kt-method | str
kt-cpuinfer | int
kt-threadpool-count | int
kt-num-gpu-experts | int
kt-max-deferred-experts-per-token | int
dllm-algorithm | str
dllm-algorithm-config | str
enable-double-sparsity | bool
ds-channel-config-path | str
ds-heavy-channel-num | int | 32
ds-heavy-token-num | int | 256
ds-heavy-channel-type | str | qk
ds-sparse-decode-threshold | int | 4096
cpu-offload-gb | int | 0
offload-group-size | int | -1
offload-num-in-group | int | 1
offload-prefetch-step | int | 1
offload-mode | str | cpu
multi-item-scoring-delimiter | int
disable-radix-cache | bool
cuda-graph-max-bs | int
cuda-graph-bs | int*
disable-cuda-graph | bool
disable-cuda-graph-padding | bool
enable-profile-cuda-graph | bool
enable-cudagraph-gc | bool
enable-layerwise-nvtx-marker | bool
enable-nccl-nvls | bool
enable-symm-mem | bool
disable-flashinfer-cutlass-moe-fp4-allgather | bool
enable-tokenizer-batch-encode | bool
disable-tokenizer-batch-decode | bool
disable-outlines-disk-cache | bool
disable-custom-all-reduce | bool
enable-mscclpp | bool
enable-torch-symm-mem | bool
disable-overlap-schedule | bool
enable-mixed-chunk | bool
enable-dp-attention | bool
enable-dp-lm-head | bool
enable-two-batch-overlap | bool
enable-single-batch-overlap | bool
tbo-token-distribution-threshold | float | 0.48
enable-torch-compile | bool
enable-torch-compile-debug-mode | bool
enable-piecewise-cuda-graph | bool
piecewise-cuda-graph-tokens | int*
piecewise-cuda-graph-compiler | str | eager | eager inductor
torch-compile-max-bs | int | 32
piecewise-cuda-graph-max-tokens | int
torchao-config | str
enable-nan-detection | bool
enable-p2p-check | bool
triton-attention-reduce-in-fp32 | bool
triton-attention-num-kv-splits | int | 8
triton-attention-split-tile-size | int
num-continuous-decode-steps | int | 1
delete-ckpt-after-loading | bool
enable-memory-saver | bool
enable-weights-cpu-backup | bool
enable-draft-weights-cpu-backup | bool
allow-auto-truncate | bool
enable-custom-logit-processor | bool
flashinfer-mla-disable-ragged | bool
disable-shared-experts-fusion | bool
disable-chunked-prefix-cache | bool
disable-fast-image-processor | bool
keep-mm-feature-on-device | bool
enable-return-hidden-states | bool
enable-return-routed-experts | bool
scheduler-recv-interval | int | 1
numa-node | int*
enable-deterministic-inference | bool
rl-on-policy-target | str |  | fsdp
enable-attn-tp-input-scattered | bool
enable-nsa-prefill-context-parallel | bool
nsa-prefill-cp-mode | str | round-robin-split | in-seq-split round-robin-split
enable-fused-qk-norm-rope | bool
enable-precise-embedding-interpolation | bool
enable-dynamic-batch-tokenizer | bool
dynamic-batch-tokenizer-batch-size | int | 32
dynamic-batch-tokenizer-batch-timeout | float | 0.002
debug-tensor-dump-output-folder | str
debug-tensor-dump-layers | int*
debug-tensor-dump-input-file | str
debug-tensor-dump-inject | str | False
disaggregation-mode | str | null | null prefill decode
disaggregation-transfer-backend | str | mooncake | mooncake nixl ascend fake mori
disaggregation-bootstrap-port | int | 8998
disaggregation-decode-tp | int
disaggregation-decode-dp | int
disaggregation-prefill-pp | int | 1
disaggregation-ib-device | str
disaggregation-decode-enable-offload-kvcache | bool
num-reserved-decode-tokens | int | 512
disaggregation-decode-polling-interval | int | 1
encoder-only | bool
language-only | bool
encoder-transfer-backend | str |  | zmq_to_scheduler zmq_to_tokenizer mooncake
encoder-urls | str*
custom-weight-loader | str*
weight-loader-disable-mmap | bool
remote-instance-weight-loader-seed-instance-ip | str
remote-instance-weight-loader-seed-instance-service-port | int
remote-instance-weight-loader-send-weights-group-ports | str
remote-instance-weight-loader-backend | str | nccl | transfer_engine nccl
remote-instance-weight-loader-start-seed-via-transfer-engine | bool
enable-pdmux | bool
pdmux-config-path | str
sm-group-num | int | 8
config | str
mm-max-concurrent-calls | int | 32
mm-per-request-timeout | float | 10.0
enable-broadcast-mm-inputs-process | bool
mm-process-config | str
mm-enable-dp-encoder | bool
limit-mm-data-per-request | str
decrypted-config-file | str
decrypted-draft-config-file | str
enable-prefix-mm-cache | bool
forward-hooks | str
"""
