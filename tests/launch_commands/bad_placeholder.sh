python3 -m sglang.launch_server --model-path <path-to-model> --tp 8
