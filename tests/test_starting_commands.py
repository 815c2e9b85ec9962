"""Which command of a text is the server, behind what it may stand, and what is no server."""

from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.starting.commands import Context, find
from tuner.starting.entries import entry_of

CONTEXT = Context(folder=Path("/w"), variables={"HOME": "/home/me"})


@pytest.mark.parametrize(
    ("text", "words", "env"),
    [
        ("vllm serve m", "vllm serve m", {}),
        ("A=1 nohup vllm serve m &", "vllm serve m", {"A": "1"}),
        (
            "export A=1; B=2 exec env C=3 vllm serve",
            "vllm serve",
            {"A": "1", "B": "2", "C": "3"},
        ),
        ("sudo -E -u me A=1 vllm serve m", "vllm serve m", {"A": "1"}),
        ("env -u X A=1 vllm serve m", "vllm serve m", {"A": "1"}),
        ("time vllm serve m 2>&1 | tee log", "vllm serve m", {}),
        ("numactl -N 0 vllm serve m", "numactl -N 0 vllm serve m", {}),
        ("A=1 sh -c 'B=2 vllm serve $A'", "vllm serve 1", {"A": "1", "B": "2"}),
        ("sh -c \"bash -c 'vllm serve m'\"", "vllm serve m", {}),
        ("/opt/x/bin/vllm serve m", "/opt/x/bin/vllm serve m", {}),
    ],
)
def test_the_server_behind_what_only_starts_it(text, words, env):
    found = find(text, CONTEXT)
    assert found.words == tuple(words.split())
    assert found.env == env
    assert found.where == "line 1"


def test_what_else_is_in_the_text_is_said_without_the_trifles():
    text = "set -e\npip install vllm\necho hi $(date)\nX=$(nproc)\nvllm serve m\ncurl localhost"
    assert find(text, CONTEXT).left_out == (
        "line 2: 'pip install vllm' is not part of the launch",
        "line 6: 'curl localhost' is not part of the launch",
        "not followed: line 4: cannot read the output of a command, '$(nproc)', without running it",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ls -l", "'ls -l' (line 1) starts no engine that is known"),
        ("# nothing", "the text starts no engine that is known"),
        ("docker run redis", "'docker run' (line 1) starts no engine"),
        ("docker run -it vllm/vllm-openai bash", "starts no engine that is known"),
        ("vllm bench serve --model m", "starts no engine"),
        ("vllm serve a & vllm serve b", "starts 2 servers (line 1, line 1)"),
        ("ssh node vllm serve m", "cannot read what ssh starts elsewhere"),
        ("srun -N1 python -m sglang.launch_server --model m", "what srun starts elsewhere"),
        ("env -i vllm serve m", "without the environment"),
        ("ollama serve", "starts Ollama"),
        ("python -m vllm.entrypoints.api_server --model m", "old demonstration server"),
        ("while true; do vllm serve m; done", "cannot read a loop"),
        ("vllm serve $(cat model)", "the output of a command"),
        ("vllm serve m \\\n\n  --tp 8", "line 3: found '--tp' where a command should begin"),
    ],
)
def test_what_is_no_server_to_be_tuned_is_said(text, sentence):
    with pytest.raises(TunerError) as caught:
        find(text, CONTEXT)
    assert sentence in caught.value.message


def test_shells_in_shells_end_somewhere():
    text = "vllm serve m"
    for _ in range(7):
        text = "sh -c '" + text.replace("'", "'\\''") + "'"
    with pytest.raises(TunerError, match="more than 5 deep"):
        find(text, CONTEXT)


@pytest.mark.parametrize(
    ("words", "image", "launch", "arguments"),
    [
        ("python -m sglang.launch_server --x", "", 3, 1),
        ("python -u -m vllm.entrypoints.cli.main serve m", "", 5, 1),
        ("python3 /a/sglang/launch_server.py --x", "", 2, 1),
        ("uv run sglang serve --x", "", 4, 1),
        ("--model m", "vllm/vllm-openai:v0.11.0", 0, 2),
        ("m --x", "reg.io:50/vllm/vllm-openai@sha256:ab", 0, 2),
        ("--model m", "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v1", 0, 2),
    ],
)
def test_words_are_divided_where_the_engines_own_begin(words, image, launch, arguments):
    entry = entry_of(words.split(), image)
    assert entry is not None
    assert (len(entry.launch), len(entry.arguments)) == (launch, arguments)


@pytest.mark.parametrize(
    ("words", "image"),
    [
        ("python train.py", ""),
        ("vllm chat", ""),
        ("--model m", "lmsysorg/sglang:latest"),
        ("/bin/bash", "vllm/vllm-openai"),
        ("bash", "vllm/vllm-openai"),
        ("python3 -c 1", "vllm/vllm-openai"),
    ],
)
def test_other_words_start_no_server(words, image):
    assert entry_of(words.split(), image) is None
