docker run -itd --rm --network=host --privileged --ulimit memlock=-1 --ulimit stack=67108864 --cap-add SYS_PTRACE \
  -e NVIDIA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 -e GLOO_SOCKET_IFNAME=eth0 -v /raid/models:/models:ro -w /sgl-workspace \
  lmsysorg/sglang:v0.5.6.post2-cu129-amd64 \
  bash -c "python3 -m sglang.launch_server --model-path /models/DeepSeek-V3.2 --tp 8 --dp 8 --enable-dp-attention --tool-call-parser deepseekv32"
