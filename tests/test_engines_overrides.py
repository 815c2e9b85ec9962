"""Who overrode whom: from what was asked, what runs, and the engine's own words."""

import pytest

from tuner.definitions.models import Value
from tuner.engines.overrides import Override, overrides
from tuner.flags.secrets import HIDDEN

ALIASES = {
    "ep-size": ("expert-parallel-size", "ep"),
    "tp-size": ("tensor-parallel-size",),
    "chunked-prefill-size": (),
}
ADJUSTED = (
    "[2026-03-01 10:00:00] WARNING: Flashinfer MoE A2A is enabled. The expert parallel size is "
    "adjusted to be the same as the tensor parallel size[8]."
)
ASKED: dict[str, Value] = {"tp-size": 8, "ep-size": 1, "moe-a2a-backend": "flashinfer"}
RUNS: dict[str, Value] = {"tp-size": 8, "ep-size": 8, "moe-a2a-backend": "flashinfer"}


def test_the_flag_named_before_the_change_is_the_one_that_overrode():
    assert overrides(ASKED, RUNS, f"loading\n{ADJUSTED}\nready", ALIASES) == [
        Override(flag="ep-size", asked=1, runs_with=8, by=["moe-a2a-backend"], line=ADJUSTED)
    ]


def test_it_is_said_in_a_sentence():
    [found] = overrides(ASKED, RUNS, ADJUSTED, ALIASES)
    assert str(found) == "ep-size was set to 1 and runs with 8: overridden by moe-a2a-backend"


def test_an_override_without_a_word_in_the_log_names_nobody():
    [found] = overrides(ASKED, RUNS, "nothing was said", ALIASES)
    assert (found.by, found.line) == ([], "")
    assert str(found) == "ep-size was set to 1 and runs with 8"


def test_a_reason_that_follows_counts_where_none_stands_before():
    line = "Cuda graph max bs is reset because of using torch_native attention backend"
    asked: dict[str, Value] = {"cuda-graph-max-bs": 64, "attention-backend": "torch_native"}
    [found] = overrides(asked, {"cuda-graph-max-bs": 0}, line, {})
    assert found.by == ["attention-backend"]


def test_an_alias_is_the_flag_itself():
    [found] = overrides({**ASKED, "ep": 4} | {"ep-size": None}, RUNS, ADJUSTED, ALIASES)
    assert (found.flag, found.asked, found.runs_with) == ("ep-size", 4, 8)


def test_a_dump_of_all_arguments_names_nobody():
    dump = "server_args=ServerArgs(" + "moe_a2a_backend flashinfer ep size set " * 20
    [found] = overrides(ASKED, RUNS, dump, ALIASES)
    assert found.by == []


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        (None, 8),
        ("auto", "fa3"),
        (0.9, "0.90"),
        (True, True),
        ("1 64 256", "1 64 256"),
        ("Triton", "triton"),
    ],
)
def test_what_was_left_open_or_spelt_otherwise_is_no_override(asked, runs):
    assert overrides({"x": asked}, {"x": runs}, "x is set", {}) == []


def test_a_secret_is_never_held_against_what_hides_it():
    assert overrides({"api-key": "s3cret"}, {"api-key": HIDDEN}, "api key is set", {}) == []


def test_a_flag_that_is_not_read_back_is_not_judged():
    assert overrides({"moe-a2a-backend": "deepep"}, {"ep-size": 8}, ADJUSTED, ALIASES) == []
