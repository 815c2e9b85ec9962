vllm serve meta-llama/Llama-3.1-8B-Instruct --dtype auto --api-key token-abc123
