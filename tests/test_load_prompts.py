from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.definitions.models import SharedPrefix
from tuner.load.prompts import (
    FIRST_ID,
    Asking,
    Askings,
    PromptPlan,
    WordRate,
    prompts_of_ids,
    prompts_of_words,
)
from tuner.load.words import WORDS

HALF = SharedPrefix(shared=0.5)


def plan(**other) -> PromptPlan:
    values = {"seed": 1, "rung_index": 0, "longest": 100}
    return PromptPlan(**values | other)


def prompts(**other):
    """Asked for a length, or for a request of a number with some tokens before it."""
    source = prompts_of_ids(plan(**other), 1000)
    return lambda length, number=0, done=0: list(source.next(Asking(length, 1, done, number)))


def worded(rate=None, **other):
    source = prompts_of_words(plan(**other), rate or WordRate())
    return lambda length, number=0, done=0: str(source.next(Asking(length, 1, done, number)))


def test_prompts_have_their_length_and_known_ids():
    source = prompts()
    for length in (1, 2, 4, 5, 100):
        prompt = source(length)
        assert len(prompt) == length
        assert all(FIRST_ID <= token < 1000 for token in prompt)


def test_no_prompt_of_a_run_starts_like_another():
    heads = []
    for rung_index in range(3):
        source = prompts(rung_index=rung_index)
        heads += [tuple(source(16)[:4]) for _ in range(4000)]
    assert len(set(heads)) == len(heads)


def test_two_prompts_in_a_row_differ_in_their_first_token():
    source = prompts()
    firsts = Counter(source(8)[0] for _ in range(990))
    assert max(firsts.values()) == 1


def test_a_seed_repeats_its_prompts_and_another_has_its_own():
    first, again, other = prompts(), prompts(), prompts(seed=2)
    for _ in range(20):
        prompt = first(50)
        assert prompt == again(50)
        assert prompt != other(50)


def test_processes_that_share_a_rung_have_no_prompt_in_common():
    parts = [prompts(index=index, of=3) for index in range(3)]
    alone = prompts()
    heads = [tuple(part(16)[:4]) for _ in range(500) for part in parts]
    assert len(set(heads)) == 1500
    assert heads == [tuple(alone(16)[:4]) for _ in range(1500)]
    assert len({tuple(part(100)[4:]) for part in parts}) == 3


def test_warm_prompts_are_those_of_their_request_in_every_rung_and_process():
    source = prompts(prefix="warm")
    other = prompts(prefix="warm", rung_index=2, index=1, of=2)
    told = [source(50, number) for number in range(64)]
    assert told == [other(50, number) for number in range(64)] == [source(50, n) for n in range(64)]
    assert len({tuple(prompt[:4]) for prompt in told}) == 64
    assert prompts(prefix="warm", seed=2)(50) != told[0]


def test_what_a_request_has_before_it_comes_after_a_warm_prompt():
    source = prompts(prefix="warm")
    assert source(50, 3, done=20)[:50] == source(50, 3)
    assert len(source(50, 3, done=20)) == 70


def test_a_shared_start_is_of_the_stated_share_and_the_rest_is_new():
    source, other = prompts(prefix=HALF), prompts(prefix=HALF, rung_index=1)
    first, long, elsewhere = source(40), source(90, done=5), other(40)
    assert first[:20] == long[:20] == elsewhere[:20]
    assert long[:45] == source(90)[:45]
    rests = [tuple(prompt[20:24]) for prompt in (first, elsewhere, source(40), other(40))]
    assert len(set(rests)) == 4
    assert [len(first), len(long)] == [40, 95]


def test_primers_are_what_prompts_share():
    lengths = ((10, 5), (60, 5))
    assert prompts_of_ids(plan(), 1000).primers(lengths) == []
    (start,) = prompts_of_ids(plan(prefix=HALF), 1000).primers(lengths)
    assert start == prompts(prefix=HALF)(60)[:30]
    warm = prompts(prefix="warm")
    told = prompts_of_ids(plan(prefix="warm"), 1000).primers(lengths)
    assert told == [warm(10, 0), warm(60, 1)]


def test_words_are_as_many_as_the_server_says_that_a_length_takes():
    assert len(worded()(50).split(" ")) == 50
    rate = WordRate(per_word=2.5, around=7.0)
    assert len(worded(rate)(57).split(" ")) == 20
    assert len(worded(rate)(57, done=25).split(" ")) == 30
    assert len(worded(rate)(3).split(" ")) == 1
    assert len(set(WORDS)) == len(WORDS) > 256


def test_no_two_prompts_of_words_start_alike():
    source = worded()
    heads = {tuple(source(16).split(" ")[:4]) for _ in range(3000)}
    assert len(heads) == 3000


def test_a_recorded_question_has_a_line_of_its_own_before_it_unless_it_is_to_be_known():
    texts = ("How are you?", "What is a radix tree?")
    cold, warm = worded(texts=texts), worded(texts=texts, prefix="warm")
    first, second = cold(5, 1), cold(5, 1)
    assert first.endswith("\nWhat is a radix tree?")
    assert first != second
    assert warm(5, 1) == texts[1]
    assert warm(5, 0, done=3).startswith("How are you?\n")
    assert len(warm(5, 0, done=3).split("\n")[1].split(" ")) == 3


def test_a_recorded_question_is_named_by_a_hash():
    source = prompts_of_words(plan(texts=("Hi", "Ho")), WordRate())
    names = [source.name_of(Asking(1, 1, 0, number)) for number in (0, 1, 0)]
    assert names[0] == names[2] != names[1]
    assert len(names[0]) == 16
    assert prompts_of_ids(plan(), 1000).name_of(Asking(1, 1)) == ""


def test_questions_of_the_tuner_itself_are_no_prompt_of_the_load():
    source = prompts_of_words(plan(), WordRate())
    asked = [str(source.unheard(8, place)) for place in range(2)]
    assert [len(text.split(" ")) for text in asked] == [8, 8]
    load = {tuple(worded()(16).split(" ")[:4]) for _ in range(100)}
    assert load.isdisjoint(tuple(text.split(" ")[:4]) for text in asked)


def lengths(of=((16, 100),), *, streams=4, seed=1, rung_index=0) -> Askings:
    return Askings(of, streams=streams, seed=seed, rung_index=rung_index)


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
    assert [(a.input_tokens, a.output_tokens) for a in taken[:50]] != list(TRACE)
    assert all(TRACE[a.number] == (a.input_tokens, a.output_tokens) for a in taken)
    assert taken == [again.next() for _ in range(100)]
    assert taken != [other.next() for _ in range(100)]
    assert source.longest == 550


def test_a_long_answer_is_met_more_often_at_first():
    source = lengths(((1, 90), (2, 10)), streams=2000)
    first = [source.first(stream) for stream in range(2000)]
    assert sum(a.input_tokens == 1 for a in first) / 2000 == pytest.approx(0.9, abs=0.03)
    assert all(a.done + a.output_tokens == {1: 90, 2: 10}[a.input_tokens] for a in first)
