python -m sglang_router.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --dp-size 4
