import pytest

from tuner.rehearsal import language


def test_text_and_ids_tell_of_the_same_tokens():
    place = language.start([17, 99])
    ids = language.ids(place, 9)
    assert language.tokens_of(language.text(place, 9)) == ids
    assert language.ids_json(place, 9) == ",".join(map(str, ids))


def test_a_stretch_goes_on_beyond_the_end_of_the_ring():
    ids = language.ids(language.SIZE - 2, 4)
    assert language.tokens_of(language.text(language.SIZE - 2, 4)) == ids
    assert language.ids_json(language.SIZE - 2, 4) == ",".join(map(str, ids))
    assert len(set(ids)) == 4


@pytest.mark.parametrize("count", [language.SIZE + 5, 3 * language.SIZE + 5])
def test_outputs_longer_than_the_ring_repeat_it(count):
    assert len(language.text(3, count)) == 5 * count
    assert language.tokens_of(language.text(3, count)) == language.ids(3, count)
    assert language.ids_json(3, count).count(",") == count - 1


def test_no_token_of_a_long_output_comes_twice():
    assert len(set(language.ids(5, language.SIZE))) == language.SIZE


def test_a_continuation_is_what_the_model_finds_likeliest():
    prompt = [44, 55]
    output = language.ids(language.start(prompt), 20)
    for previous, token in zip([55, *output], output, strict=False):
        assert language.likeliest(previous) == token
        assert -0.6 <= language.logprob(previous, token) < 0
        assert language.top(previous, 3)[0][1] == token


def test_anything_else_is_unlikely():
    output = language.ids(language.start([1]), 20)
    assert all(language.logprob(token, token) <= -4 for token in output)


def test_what_a_drifting_model_says_is_fluent_but_not_the_models():
    prompt = [44, 55]
    drifting = language.ids(language.start(prompt, "drifting"), 50, "drifting")
    assert len(set(drifting)) == 50
    unlikely = [
        language.logprob(previous, token) < -3
        for previous, token in zip([55, *drifting], drifting, strict=False)
    ]
    assert all(unlikely)


def test_log_probabilities_are_always_the_same_and_shift_where_the_model_drifts():
    pairs = list(zip(language.ids(0, 50), language.ids(1, 50), strict=True))
    own = [language.logprob(*pair) for pair in pairs]
    assert own == [language.logprob(*pair) for pair in pairs]
    drifting = [language.logprob(*pair, "drifting") for pair in pairs]
    assert sum(drifting) / 50 < sum(own) / 50 - 3


def test_the_likeliest_tokens_come_best_first_without_doubles():
    found = language.top(12_345, 5)
    assert found == sorted(found, reverse=True)
    assert len({token for _, token in found}) == len(found) == 5


def test_foreign_text_is_about_four_characters_a_token():
    assert len(language.tokens_of("The quick brown fox jumps.")) == 7
    assert language.tokens_of("") == []
