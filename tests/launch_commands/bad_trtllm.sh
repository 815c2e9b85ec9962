trtllm-serve nvidia/DeepSeek-R1-FP4 --tp_size 8 --backend pytorch --max_batch_size 256
