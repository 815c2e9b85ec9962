uv run --with vllm vllm serve mistralai/Mistral-Small-3.2-24B-Instruct-2506 --tokenizer_mode mistral --config_format mistral --load_format mistral --limit-mm-per-prompt '{"image": 10}' -tp 2
