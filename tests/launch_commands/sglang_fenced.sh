```bash
(sglang) user@node17:~$ SGLANG_SET_CPU_AFFINITY=1 python3 -m sglang.launch_server --model-path="Qwen/Qwen3-Next-80B-A3B-Instruct" --tp-size=4 --context-length 131_072 --mamba-ssm-dtype=bfloat16 --cuda-graph-bs 1 2 4 8
```
