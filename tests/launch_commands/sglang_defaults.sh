#!/bin/bash
MODEL=${MODEL:-zai-org/GLM-4.6-FP8}
BACKEND="${BACKEND:-fa3}"
python3 -m sglang.launch_server --model-path "$MODEL" --tp ${TP_SIZE:-8} \
  --attention-backend "$BACKEND" --served-model-name ${NAME:-glm-4-6} --host ${HOST:-0.0.0.0} --port ${PORT:-9000}
