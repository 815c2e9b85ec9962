GPUS=$(nvidia-smi -L | wc -l)
echo "using $GPUS"
vllm serve Qwen/Qwen3-8B --tensor-parallel-size $GPUS
