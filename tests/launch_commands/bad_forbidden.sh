python3 -m sglang.launch_server --model-path m/n --enable-torch-compile --disable-cuda-graph
