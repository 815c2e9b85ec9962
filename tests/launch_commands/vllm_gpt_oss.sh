export VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1
vllm serve openai/gpt-oss-120b \
    --tensor-parallel-size 2 \
    --async-scheduling \
    --max-num-batched-tokens 8192 \
    --max-num-seqs 512 \
    --compilation-config '{"pass_config":{"enable_fi_allreduce_fusion":true,"enable_noop":true}}' \
    --no-enable-prefix-caching
