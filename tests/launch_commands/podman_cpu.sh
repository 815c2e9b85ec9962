podman run -it --rm -p 8000:8000 -e VLLM_CPU_KVCACHE_SPACE=8 public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.9.2 --model=facebook/opt-125m --dtype=bfloat16
