#!/usr/bin/env bash
# kimi on one host
export VLLM_HOST_IP=127.0.0.1 OMP_NUM_THREADS=8
if [ ! -d logs ]; then mkdir logs; fi
cat > logs/notes.txt <<EOF
vllm serve is started below, with --tensor-parallel-size 8
EOF
vllm serve moonshotai/Kimi-K2-Thinking --served-model-name kimi-k2 \
  --trust-remote-code --tensor-parallel-size 8 --decode-context-parallel-size 8 \
  --enable-auto-tool-choice --tool-call-parser kimi_k2 --reasoning-parser kimi_k2 \
  --max-num-seqs 48 --gpu-memory-utilization 0.975 \
  >> logs/vllm.log 2>> logs/vllm.err < /dev/null
