from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.load.prompts import FIRST_ID, Asking, Lengths, Prompts


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


def lengths(of=((16, 100),), *, streams=4, seed=1, rung_index=0) -> Lengths:
    return Lengths(of, streams=streams, seed=seed, rung_index=rung_index)


@given(st.integers(1, 200), st.integers(1, 2000), st.integers(0, 99))
def test_what_is_left_at_first_is_between_one_and_all_and_leaves_no_gap(streams, tokens, seed):
    source = lengths(((16, tokens),), streams=streams, seed=seed)
    first = [source.first(stream) for stream in range(streams)]
    assert {(a.input_tokens, a.done + a.output_tokens) for a in first} == {(16, tokens)}
    for index, left in enumerate(sorted(a.output_tokens for a in first)):
        assert 1 <= left <= tokens
        assert index / streams * tokens <= left <= (index + 1) / streams * tokens + 1


def test_what_is_left_at_first_is_uniform_for_a_single_stream():
    seen = [lengths(streams=1, seed=seed).first(0).output_tokens for seed in range(1000)]
    assert sum(seen) / len(seen) == pytest.approx(50.5, abs=4)
    assert len(set(seen)) > 90


def test_what_is_left_at_first_is_not_in_the_order_of_the_streams():
    def left(**other):
        source = lengths(((16, 1000),), streams=64, **other)
        return [source.first(stream).output_tokens for stream in range(64)]

    assert left() != sorted(left())
    assert left() == left()
    assert left() != left(rung_index=1)


def test_requests_of_one_length_stay_so():
    source = lengths()
    assert {source.next() for _ in range(5)} == {Asking(16, 100)}
    assert source.longest == 116


TRACE = tuple((10 * n, n) for n in range(1, 51))


def test_a_trace_is_taken_whole_in_an_order_of_the_seed_and_then_again():
    source, again, other = lengths(TRACE), lengths(TRACE), lengths(TRACE, seed=2)
    taken = [source.next() for _ in range(100)]
    assert sorted((a.input_tokens, a.output_tokens) for a in taken[:50]) == sorted(TRACE)
    assert taken[50:] == taken[:50]
    assert taken[:50] != [Asking(*pair) for pair in TRACE]
    assert taken == [again.next() for _ in range(100)]
    assert taken != [other.next() for _ in range(100)]
    assert source.longest == 550


def test_a_long_answer_is_met_more_often_at_first():
    source = lengths(((1, 90), (2, 10)), streams=2000)
    first = [source.first(stream) for stream in range(2000)]
    assert sum(a.input_tokens == 1 for a in first) / 2000 == pytest.approx(0.9, abs=0.03)
    assert all(a.done + a.output_tokens == {1: 90, 2: 10}[a.input_tokens] for a in first)
