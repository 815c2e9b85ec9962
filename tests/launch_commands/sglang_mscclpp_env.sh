env SGLANG_MSCCLPP_MAX_BYTES=4194304 NCCL_P2P_LEVEL=SYS taskset -c 0-47 python3 -m sglang.launch_server \
  --model-path /data/GLM-5-NVFP4 --tp 8 --quantization modelopt_fp4 --enable-mscclpp \
  --chunked-prefill-size 8192 --cuda-graph-max-bs 300
