docker exec -it sglang python3 -m sglang.launch_server --model-path m/n
