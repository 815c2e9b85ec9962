python -m sglang.launch_server --model-path Qwen/Qwen2.5-72B-Instruct --tp 4 \
  --json-model-override-args '{"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}' \
  --lora-paths sql=/adapters/sql chat=/adapters/chat --api-key "s3cret with blanks"
