vllm serve Qwen/Qwen3-8B --hf-overrides '{"a": 1}
