# the variable does nothing without the flag
SGLANG_MSCCLPP_MAX_BYTES=1048576 python3 -m sglang.launch_server --model-path m/n --deepep-mode normal --enable-torch-compile
