from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load.prompts import FIRST_ID, Prompts, residual_lengths


def prompts(**other) -> Prompts:
    values = {"seed": 1, "rung_index": 0, "vocab_size": 1000, "longest": 100}
    return Prompts(**values | other)


def test_prompts_have_their_length_and_known_ids():
    source = prompts()
    for length in (1, 2, 4, 5, 100):
        prompt = source.next(length)
        assert len(prompt) == length
        assert all(FIRST_ID <= token < 1000 for token in prompt)


def test_no_prompt_of_a_run_starts_like_another():
    heads = []
    for rung_index in range(3):
        source = prompts(rung_index=rung_index)
        heads += [tuple(source.next(16)[:4]) for _ in range(4000)]
    assert len(set(heads)) == len(heads)


def test_two_prompts_in_a_row_differ_in_their_first_token():
    source = prompts()
    firsts = Counter(source.next(8)[0] for _ in range(990))
    assert max(firsts.values()) == 1


def test_a_seed_repeats_its_prompts_and_another_has_its_own():
    first, again, other = prompts(), prompts(), prompts(seed=2)
    for _ in range(20):
        prompt = first.next(50)
        assert prompt == again.next(50)
        assert prompt != other.next(50)


@given(st.integers(1, 200), st.integers(1, 2000), st.integers(0, 99))
def test_residual_lengths_are_between_one_and_all_and_leave_no_gap(streams, output_tokens, seed):
    lengths = residual_lengths(streams, output_tokens, seed=seed, rung_index=0)
    assert len(lengths) == streams
    assert all(1 <= length <= output_tokens for length in lengths)
    for index, length in enumerate(sorted(lengths)):
        assert index / streams * output_tokens <= length
        assert length <= (index + 1) / streams * output_tokens + 1


def test_residual_lengths_are_uniform_for_a_single_stream():
    seen = [residual_lengths(1, 100, seed=seed, rung_index=0)[0] for seed in range(1000)]
    assert sum(seen) / len(seen) == pytest.approx(50.5, abs=4)
    assert len(set(seen)) > 90


def test_residual_lengths_are_not_in_the_order_of_the_streams():
    lengths = residual_lengths(64, 1000, seed=1, rung_index=0)
    assert lengths != sorted(lengths)
    assert lengths == residual_lengths(64, 1000, seed=1, rung_index=0)
    assert lengths != residual_lengths(64, 1000, seed=1, rung_index=1)
