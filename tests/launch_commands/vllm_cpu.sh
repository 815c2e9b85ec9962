VLLM_CPU_KVCACHE_SPACE=40 VLLM_CPU_OMP_THREADS_BIND=0-3 vllm serve Qwen/Qwen3-0.6B --max-num-seqs 16 --dtype bfloat16
