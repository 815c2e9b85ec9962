sudo docker run -d --runtime nvidia --gpus '"device=2,3"' \
    --name vllm-gpt-oss --restart unless-stopped \
    -v /data/hf:/root/.cache/huggingface \
    -e HUGGING_FACE_HUB_TOKEN=$HF_TOKEN -e VLLM_LOGGING_LEVEL=WARNING \
    -p 8000:8000 --ipc=host \
    vllm/vllm-openai:v0.11.0 \
    --model openai/gpt-oss-20b --tensor-parallel-size 2 --max-num-seqs 256
