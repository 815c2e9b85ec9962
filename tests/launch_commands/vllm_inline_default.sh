vllm serve ${MODEL:-zai-org/GLM-4.6-FP8} --max-num-seqs ${SEQS:-64} --tensor-parallel-size 4
