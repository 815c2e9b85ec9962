"""The command line of one version, and which flag a word on it is."""

import pytest

from tuner.flags.catalogue import Catalogue, Flag

MADE = Catalogue(
    engine="sglang",
    version="1.0",
    how="recorded",
    flags=[
        Flag(name="tp-size", aliases=["tensor-parallel-size"]),
        Flag(name="enable-mscclpp", kind="presence"),
        Flag(name="cuda-graph-max-bs-decode"),
        Flag(name="cuda-graph-max-bs-prefill"),
        Flag(name="prefix-caching", kind="negatable"),
        Flag(name="num-continuous-decode-steps"),
    ],
    dead={"num-continuous-decode-steps": "sglang/args.py:1"},
)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("tp-size", "tp-size"),
        ("--tp_size", "tp-size"),
        ("tensor-parallel-size", "tp-size"),
        ("no-prefix-caching", "prefix-caching"),
        ("tensor-parallel", "tp-size"),
        ("enable-msc", "enable-mscclpp"),
        ("tp-size.inner_key", "tp-size"),
    ],
)
def test_a_flag_is_found_however_it_is_written(written, name):
    found = MADE.find(written)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "written", ["cuda-graph-max-bs", "no-enable-mscclpp", "tp-sizes", "", "--", "TP-SIZE"]
)
def test_a_word_that_is_no_flag_or_could_be_two_is_not_found(written):
    assert MADE.find(written) is None


def test_a_dead_flag_is_dead_under_each_of_its_spellings():
    assert MADE.is_dead("num_continuous_decode_steps")
    assert MADE.is_dead("num-continuous")
    assert not MADE.is_dead("tp-size")
    assert not MADE.is_dead("never-heard-of")


def test_a_catalogue_is_the_same_after_it_was_written_and_read():
    text = MADE.model_dump_json(exclude_defaults=True)
    assert Catalogue.model_validate_json(text) == MADE
    assert MADE.title == "sglang 1.0"
