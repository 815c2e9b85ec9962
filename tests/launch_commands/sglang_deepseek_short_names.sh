$ python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3-0324 --tp 8 --dp 8 --enable-dp-attention \
>   --trust-remote-code --moe-a2a-backend deepep --deepep-mode low_latency --cuda-graph-bs 1 2 4 8 16 \
>   --chunked-prefill-size 16384 2>&1 | tee serve.log
