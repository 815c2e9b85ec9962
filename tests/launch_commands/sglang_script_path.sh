python3 /sgl-workspace/sglang/python/sglang/launch_server.py --model-path openai/gpt-oss-120b --tp 2 --attention-backend trtllm_mha --moe-runner-backend flashinfer_mxfp4
