CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-8B --port 8000 &
CUDA_VISIBLE_DEVICES=1 vllm serve Qwen/Qwen3-8B --port 8001 &
wait
