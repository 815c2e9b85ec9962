#!/bin/sh
exec python3 -m sglang.launch_server --model-path "$1" --tp 8
