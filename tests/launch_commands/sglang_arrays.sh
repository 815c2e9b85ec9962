#!/usr/bin/env bash
MODEL_DIR="${MODEL_DIR:-/models}"
ARGS=(
  --model-path "$MODEL_DIR/DeepSeek-R1"
  --tp 8
  --trust-remote-code
)
# graphs cost memory that this model needs
ARGS+=(--disable-cuda-graph)
EXTRA="--enable-metrics --log-requests"

exec python3 -m sglang.launch_server "${ARGS[@]}" $EXTRA
