vllm serve "$(ls -d /models/*/ | head -n 1)" --tensor-parallel-size 8
