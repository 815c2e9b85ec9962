#!/bin/bash
MODEL=zai-org/GLM-4.6-FP8
ARGS=(
  --model-path "$MODEL"
  --tp 4   # four
  # cuda graphs
  --cuda-graph-max-bs 64
)
ARGS+=(--port 9000 --trust-remote-code)
ARGS+=(
  --mem-fraction-static 0.85 # of the memory
)
exec python3 -m sglang.launch_server "${ARGS[@]}"
