#!/bin/bash
# Qwen3 on four cards of the node
set -euo pipefail
export CUDA_VISIBLE_DEVICES=4,5,6,7
export SGLANG_ENABLE_JIT_DEEPGEMM=1
MODEL=Qwen/Qwen3-235B-A22B-Instruct-2507-FP8
PORT=30000

nohup python -m sglang.launch_server \
    --model-path "$MODEL" \
    --tp 4 --ep 4 \
    --attention-backend fa3 \
    --context-length 262144 \
    --port $PORT > "logs/sglang_${PORT}.log" 2>&1 &
echo "started with pid $!"
