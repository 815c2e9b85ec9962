sglang serve \
  --model-path moonshotai/Kimi-K2-Instruct-0905 \
  --tp 8 \
  --trust-remote-code \
  --tool-call-parser kimi_k2 \
  --enable-mscclpp \
  --mem-fraction-static 0.9
