python3 -m sglang.launch_server --model-path m/n \
  # use all GPUs
  --tp 8
