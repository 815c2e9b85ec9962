vllm serve --enforce-eager --max-model-len 4096 --speculative-config.method eagle3 --speculative-config.num_speculative_tokens 3 Qwen/Qwen3-8B
