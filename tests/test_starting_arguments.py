"""An engine's arguments: one name for each flag, whole values, no guess where two are possible."""

import pytest

from tuner.errors import TunerError
from tuner.starting.arguments import read


def flags(engine, line: str):
    return read(engine, line.split()).flags


@pytest.mark.parametrize(
    ("engine", "line", "expected"),
    [
        ("sglang", "--model m --tp 8", {"tp-size": "8"}),
        ("sglang", "--model m --tensor-parallel-size 8", {"tp-size": "8"}),
        ("sglang", "--model m --ep=8 --dp 2", {"ep-size": "8", "dp-size": "2"}),
        ("sglang", "--model m --mem_fraction_static .9", {"mem-fraction-static": ".9"}),
        ("vllm", "m -tp 8 -q fp8", {"tensor-parallel-size": "8", "quantization": "fp8"}),
        ("vllm", "m -tp=8", {"tensor-parallel-size": "8"}),
        ("vllm", "m -O3", {"optimization-level": "3"}),
        ("vllm", "m -O 3", {"optimization-level": "3"}),
        ("vllm", "m -cc.mode 3", {"compilation-config.mode": "3"}),
        ("vllm", "m --no-enable-prefix-caching", {"no-enable-prefix-caching": True}),
        ("vllm", "--enforce-eager m", {"enforce-eager": True}),
        ("vllm", "--max-num-seqs 8 m", {"max-num-seqs": "8"}),
        ("vllm", "m --swap-space -1 --x -.5", {"swap-space": "-1", "x": "-.5"}),
        ("sglang", "--model m --cuda-graph-bs 1 2 4", {"cuda-graph-bs": "1 2 4"}),
        ("vllm", "m --served-model-name a b --x", {"served-model-name": "a b", "x": True}),
        ("sglang", "--model m --new-flag --other 1", {"new-flag": True, "other": "1"}),
    ],
)
def test_flags_have_one_name_and_their_words(engine, line, expected):
    found = read(engine, line.split())
    assert found.model == "m"
    assert found.flags == expected


def test_an_empty_value_is_a_value():
    assert read("vllm", ["m", "--x", ""]).flags == {"x": ""}


def test_address_is_said_and_no_flag():
    found = read("vllm", ["m", "--host", "0.0.0.0", "--port", "8000"])
    assert (found.flags, found.notes) == ({}, [])
    assert found.serve == {"host": "0.0.0.0", "port": 8000}


@pytest.mark.parametrize(
    "words", [("--port", "${PORT}"), ("--port", "70000"), ("--host", "${HOST}"), ("--host",)]
)
def test_an_address_that_is_not_known_is_said_and_left_to_the_engine(words):
    found = read("vllm", ["m", *words])
    assert (found.flags, found.serve) == ({}, {})
    name = words[0][2:]
    assert found.notes == [f"{' '.join(words)} is not known here: write it as serve.{name}"]


def test_of_a_flag_that_is_said_twice_the_last_counts_and_it_is_said():
    found = read("sglang", ["--model", "m", "--tp", "4", "--tp-size", "8"])
    assert found.flags == {"tp-size": "8"}
    assert found.notes == ["--tp-size is said twice: the last one counts"]


def test_json_among_several_values_loses_its_blanks_only():
    words = ["m", "--lora-modules", '{"name": "a b", "path": "/x"}', "c=/d"]
    with pytest.raises(TunerError):  # a blank that is part of a value would divide it
        read("vllm", ["m", "--lora-modules", "a b", "c=/d"])
    found = read("vllm", [word.replace("a b", "ab") for word in words])
    assert found.flags == {"lora-modules": '{"name":"ab","path":"/x"} c=/d'}


@pytest.mark.parametrize(
    ("engine", "line", "sentence"),
    [
        ("vllm", "m --x 1 2", "cannot tell what '2' belongs to"),
        ("vllm", "m n", "cannot tell what 'n' belongs to"),
        ("sglang", "m --tp 8", "cannot tell what 'm' belongs to"),
        ("sglang", "--tp 8", "names no model, expected --model-path MODEL"),
        ("vllm", "--tensor-parallel-size 8", "names no model, expected --model MODEL"),
        ("vllm", "m \u2013x 1", "typographic dash"),
        ("sglang", "--model m --nnodes 2", "--nnodes 2 spreads one server over several hosts"),
        ("vllm", "m -n 2", "--nnodes 2 spreads"),
        ("sglang", "--model m --disaggregation-mode decode", "one half of two servers"),
    ],
)
def test_what_cannot_be_told_is_said(engine, line, sentence):
    with pytest.raises(TunerError, match=sentence):
        read(engine, line.split())


def test_one_node_is_one_host():
    assert flags("sglang", "--model m --nnodes 1 --node-rank 0")["nnodes"] == "1"
