VLLM_BATCH_INVARIANT=1 vllm serve "deepseek-ai/DeepSeek-V3.1" -tp 8 -O3 --enable-expert-parallel --gpu-memory-utilization=0.92 --kv-cache-dtype fp8 --block-size 128
