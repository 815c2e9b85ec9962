"""What a version says to flags, word by word."""

import pytest

from tuner.definitions.flag_judgement import judge_name, judge_value, judge_variable
from tuner.flags.catalogue import Catalogue, Flag

MADE = Catalogue(
    engine="sglang",
    version="0.5.23",
    how="recorded",
    flags=[
        Flag(name="enable-mscclpp", kind="presence"),
        Flag(name="cuda-graph-max-bs-decode"),
        Flag(name="cuda-graph-max-bs-prefill"),
        Flag(name="cuda-graph-backend-prefill"),
        Flag(name="moe-runner-backend", choices=["auto", "triton", "cutlass"]),
        Flag(name="page-size", choices=[1, 16]),
        Flag(name="sizes", kind="list", choices=[1, 2, 4]),
        Flag(name="grpc-mode", kind="presence", deprecated="smg-grpc-mode"),
        Flag(name="histogram", kind="presence", deprecated=""),
        Flag(name="chunked-prefill-size"),
        Flag(name="prefix-caching", kind="negatable"),
        Flag(name="trust", kind="bool"),
        Flag(name="token", kind="optional"),
        Flag(name="tensor-parallel-size", aliases=["tp-size"]),
    ],
    variables=["SGLANG_ENABLE_SPEC_V2", "SGLANG_USE_AITER"],
)


@pytest.mark.parametrize(
    ("name", "kind", "message", "hint"),
    [
        (
            "enable-mscclp-x",
            "unknown",
            "unknown flag 'enable-mscclp-x' (did you mean 'enable-mscclpp'?), expected a flag of"
            " sglang 0.5.23",
            "",
        ),
        ("zzz", "unknown", "unknown flag 'zzz', expected a flag of sglang 0.5.23", ""),
        (
            "cuda-graph-max-bs",
            "renamed",
            "unknown flag 'cuda-graph-max-bs': sglang 0.5.23 has 'cuda-graph-max-bs-decode' for it",
            "write --cuda-graph-max-bs-decode",
        ),
        (
            "--enable_piecewise_cuda_graph",
            "renamed",
            "unknown flag 'enable-piecewise-cuda-graph': sglang 0.5.23 has"
            " 'cuda-graph-backend-prefill=tc_piecewise' for it",
            "write --cuda-graph-backend-prefill=tc_piecewise",
        ),
        (
            "cuda-graph",
            "unknown",
            "unknown flag 'cuda-graph', which is short for cuda-graph-backend-prefill and"
            " cuda-graph-max-bs-decode and cuda-graph-max-bs-prefill",
            "write the one that is meant",
        ),
        (
            "chunked",
            "abbreviation",
            "found an abbreviation of 'chunked-prefill-size', write it in full",
            "",
        ),
        (
            "--chunked_prefill.a",
            "abbreviation",
            "found an abbreviation of 'chunked-prefill-size', write it in full",
            "write chunked-prefill-size.a",
        ),
        (
            "grpc-mode",
            "deprecated",
            "--grpc-mode is deprecated in sglang 0.5.23: use --smg-grpc-mode",
            "",
        ),
        ("histogram", "deprecated", "--histogram is deprecated in sglang 0.5.23", ""),
    ],
)
def test_a_name_is_judged_in_words(name, kind, message, hint):
    said = judge_name(MADE, name)
    assert said is not None
    assert (said.kind, said.message, said.hint) == (kind, message, hint)
    assert said.stops == (kind != "deprecated")


@pytest.mark.parametrize(
    "name", ["enable-mscclpp", "no-prefix-caching", "chunked-prefill-size.x", "tp"]
)
def test_nothing_is_said_of_a_flag_that_the_version_has(name):
    assert judge_name(MADE, name) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "moe-runner-backend",
            "tritn",
            "'moe-runner-backend' cannot be 'tritn' (did you mean 'triton'?)",
        ),
        ("page-size", 8, "'page-size' cannot be 8"),
        ("sizes", "1 3", "'sizes' cannot be '1 3'"),
        ("enable-mscclpp", 4, "'enable-mscclpp' is given 4, but it stands alone"),
        ("enable-mscclpp", "on", "'enable-mscclpp' is given 'on', but it stands alone"),
        ("chunked-prefill-size", True, "'chunked-prefill-size' stands alone here, but it takes"
         " a value"),
        ("trust", True, "'trust' stands alone here, but it takes true or false"),
    ],
)  # fmt: skip
def test_a_value_that_the_parser_would_refuse_is_named(name, value, message):
    said = judge_value(MADE, name, value)
    assert said is not None
    assert said.message == message
    assert said.stops


def test_the_choices_are_in_the_hint():
    said = judge_value(MADE, "moe-runner-backend", "x")
    assert said is not None
    assert said.hint == "it takes auto, triton, cutlass"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("moe-runner-backend", "triton"),
        ("moe-runner-backend", "${BACKEND}"),
        ("moe-runner-backend", None),
        ("page-size", 16),
        ("page-size", "16"),
        ("sizes", "1 4"),
        ("enable-mscclpp", True),
        ("chunked-prefill-size", False),
        ("chunked-prefill-size", 8192),
        ("chunked-prefill-size.key", True),
        ("token", True),
        ("token", "x"),
        ("never-heard-of", 1),
    ],
)
def test_nothing_is_said_of_a_value_that_is_taken_or_cannot_be_told(name, value):
    assert judge_value(MADE, name, value) is None


@pytest.mark.parametrize(
    ("name", "style", "taken"),
    [
        ("prefix-caching", "negation", True),
        ("enable-mscclpp", "negation", False),
        ("trust", "value", True),
        ("enable-mscclpp", "value", False),
        ("prefix-caching", "presence", True),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_judged_as_it_is_spelt(name, style, taken, value):
    said = judge_value(MADE, name, value, style)
    assert (said is None) == (taken or (style == "presence" and not value))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SGLANG_MSCCLPP_MAX_BYTES", "SGLANG_MSCCLPP_MAX_BYTES: read by nothing in sglang 0.5.23"),
        (
            "SGLANG_USE_AITR",
            "SGLANG_USE_AITR: read by nothing in sglang 0.5.23 (did you mean 'SGLANG_USE_AITER'?)",
        ),
        ("SGLANG_USE_AITER", None),
        ("NCCL_DEBUG", None),
        ("VLLM_USE_V1", None),
    ],
)
def test_only_an_engines_own_variable_is_missed(name, said):
    assert judge_variable(MADE, name) == said


def test_no_variable_is_missed_where_nobody_looked():
    unseen = MADE.model_copy(update={"variables": None})
    assert judge_variable(unseen, "SGLANG_NEVER") is None
