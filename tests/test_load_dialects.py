import json
import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.exchanges import came
from tuner.errors import HttpUnreachable
from tuner.http.exchange import RawExchange
from tuner.load.dialects import DIALECTS, Dialect, Reply, decode, spread

COMPLETIONS = DIALECTS["completions"]
GENERATE = DIALECTS["generate"]
CHAT = DIALECTS["chat"]


def exchange(*data: object, done: bool = True, status: int = 200, **other) -> RawExchange:
    """A stream whose n-th event arrives at n seconds."""
    chunks = [
        (
            float(at),
            b"data: " + (one if isinstance(one, bytes) else msgspec.json.encode(one)) + b"\n\n",
        )
        for at, one in enumerate(data, start=1)
    ]
    done_s = float(len(chunks)) if done else None
    return came(*chunks, status=status, done_s=done_s, **other)


def part(text: str = "x", used: int | None = None, reason: str | None = None) -> dict[str, object]:
    usage = {} if used is None else {"usage": {"prompt_tokens": 7, "completion_tokens": used}}
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason}], **usage}


def last_usage(used: int) -> dict[str, object]:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": used}}


def native(text: str, used: int, reason: object = None) -> dict[str, object]:
    meta = {"completion_tokens": used, "prompt_tokens": 7, "finish_reason": reason}
    return {"text": text, "meta_info": meta}


def delta(used=None, reason=None, **said) -> dict[str, object]:
    usage = {} if used is None else {"usage": {"prompt_tokens": 7, "completion_tokens": used}}
    return {"choices": [{"index": 0, "delta": said, "finish_reason": reason}], **usage}


def opening(used: int | None = None) -> dict[str, object]:
    return delta(used, role="assistant", content="")


def test_chat_asks_one_message_for_exactly_so_many_greedy_tokens():
    asked = json.loads(CHAT.body("m", "how are you", 5))
    assert asked == {
        "model": "m",
        "messages": [{"role": "user", "content": "how are you"}],
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_who_speaks_is_no_token_of_a_chat():
    raw = exchange(
        opening(0),
        delta(1, content="a"),
        delta(3, "length", content="bc"),
        last_usage(3),
        b"[DONE]",
    )
    assert decode(raw, CHAT) == Reply(events=((2, 1), (3, 2)), input_tokens=7, text="abc")
    raw = exchange(opening(), delta(content="a"), delta(content="b"), last_usage(6), b"[DONE]")
    assert decode(raw, CHAT).events == ((2, 3), (3, 3))
    raw = exchange(opening(), delta(content=""), delta(reason="length"), last_usage(2), b"[DONE]")
    assert decode(raw, CHAT).events == ((2, 1), (3, 1))


def test_a_token_that_is_counted_with_the_name_of_who_speaks_is_counted_once():
    raw = exchange(opening(1), delta(1, content="a"), delta(2, "length", content="b"), b"[DONE]")
    reply = decode(raw, CHAT)
    assert (reply.output_tokens, reply.events[0], reply.error) == (2, (1, 1), None)
    raw = exchange(opening(1), delta(1, "length", content="a"), last_usage(1), b"[DONE]")
    assert decode(raw, CHAT) == Reply(events=((1, 1),), input_tokens=7, text="a")
    cut = decode(exchange(opening(1), delta(1, content="a"), done=False), CHAT)
    assert (cut.events, cut.uncounted) == (((1, 1),), ())


def test_the_first_text_is_the_first_event_though_its_tokens_are_counted_later():
    raw = exchange(opening(0), delta(0, content="a"), delta(1, "length", content="b"), b"[DONE]")
    assert decode(raw, CHAT).events == ((2, 1),)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_and_calls_of_tools_speak(name):
    call = {"index": 0, "function": {"name": "add", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "[1]"}}
    raw = exchange(
        opening(),
        delta(**{name: "hm", "content": None}),
        delta(content="so "),
        delta(tool_calls=[call]),
        delta(tool_calls=[more]),
        delta(reason="tool_calls", tool_calls=[]),
        last_usage(4),
        b"[DONE]",
    )
    reply = decode(raw, CHAT)
    assert reply.text == "hmso add[1]"
    assert reply.events == ((2, 1), (3, 1), (4, 1), (5, 1))


def test_a_thought_under_both_names_is_said_once():
    said = delta(1, "length", reasoning="hm", reasoning_content="hm")
    assert decode(exchange(said, b"[DONE]"), CHAT).text == "hm"


def test_several_events_of_a_chat_in_one_read_arrive_together():
    raw = exchange(opening(0), delta(2, content="ab"), delta(4, "length", content="cd"), b"[DONE]")
    raw = came((5.0, raw.body), done_s=raw.done_s)
    assert decode(raw, CHAT).events == ((5.0, 2), (5.0, 2))


def test_both_dialects_ask_for_exactly_so_many_greedy_tokens():
    asked = json.loads(COMPLETIONS.body("m", [10, 11], 5))
    assert asked == {
        "model": "m",
        "prompt": [10, 11],
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    asked = json.loads(GENERATE.body("m", [10, 11], 5))
    assert asked["input_ids"] == [10, 11]
    assert asked["stream"] is True
    assert asked["sampling_params"] == {
        "max_new_tokens": 5,
        "min_new_tokens": 5,
        "ignore_eos": True,
        "temperature": 0,
    }


def test_running_usage_gives_each_event_its_tokens():
    raw = exchange(part("a", 1), part("bc", 4), part("", 5, "length"), last_usage(5), b"[DONE]")
    reply = decode(raw, COMPLETIONS)
    assert reply == Reply(events=((1, 1), (2, 3), (3, 1)), input_tokens=7, text="abc")
    assert reply.output_tokens == 5


def test_tokens_without_text_count_at_their_event():
    raw = exchange(part("", 1), part("\u00e9", 2), last_usage(2), b"[DONE]")
    assert decode(raw, COMPLETIONS).events == ((1, 1), (2, 1))


def test_usage_at_the_end_is_dealt_over_the_events_with_text():
    raw = exchange(part("a"), part(""), part("b"), part("c"), last_usage(8), b"[DONE]")
    assert decode(raw, COMPLETIONS).events == ((1, 3), (3, 3), (4, 2))


def test_usage_in_the_last_event_with_text_includes_it():
    raw = exchange(part("a"), part("b", 4, "length"), b"[DONE]")
    assert decode(raw, COMPLETIONS).events == ((1, 2), (2, 2))


def test_usage_of_an_answer_without_any_text_is_dealt_over_its_events():
    raw = exchange(part(""), part(""), last_usage(4), b"[DONE]")
    assert decode(raw, COMPLETIONS).events == ((1, 2), (2, 2))


def test_a_cut_answer_without_usage_waits_for_its_count():
    reply = decode(exchange(part("a"), part("b"), done=False), COMPLETIONS)
    assert (reply.events, reply.uncounted, reply.error) == ((), (1, 2), None)


def test_a_cut_answer_keeps_what_was_counted():
    raw = exchange(part("a", 1), part("b", 3), done=False)
    raw.add(9.0, b'data: {"choi')
    reply = decode(raw, COMPLETIONS)
    assert (reply.events, reply.uncounted, reply.error) == (((1, 1), (2, 2)), (), None)


def test_the_native_dialect_counts_and_tells_all_text_so_far():
    raw = exchange(native("a", 1), native("abc", 4), native("abcd", 5, {"type": "length"}))
    assert decode(raw, GENERATE) == Reply(
        events=((1, 1), (2, 3), (3, 1)), input_tokens=7, text="abcd"
    )


def test_native_increments_of_text_are_joined():
    raw = exchange(native("ab", 1), native("cd", 2, {"type": "stop"}))
    assert decode(raw, GENERATE).text == "abcd"


@pytest.mark.parametrize(
    ("dialect", "payload"),
    [
        (COMPLETIONS, part("abc", 9, "length")),
        (GENERATE, native("abc", 9, {"type": "length"})),
        (
            CHAT,
            {
                "choices": [{"message": {"content": "abc"}, "finish_reason": "length"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 9},
            },
        ),
    ],
)
def test_an_answer_that_is_no_stream_arrives_at_once(dialect, payload):
    body = msgspec.json.encode(payload)
    headers = [(b"Content-Type", b"application/json; charset=utf-8")]
    raw = came((1.0, body[:9]), (2.0, body[9:]), headers=headers, done_s=2.0)
    assert decode(raw, dialect) == Reply(events=((2.0, 9),), input_tokens=7, text="abc")
    raw.done_s = None
    assert decode(raw, dialect) == Reply()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([part("a", 1), {"error": {"message": "died", "code": 500}}, b"[DONE]"], "died"),
        ([part("a", 1), {"error": "died"}], "died"),
        ([part("a", 1), {"error": {"code": 500}}], "{'code': 500}"),
        ([part("a", 1), {"object": "error", "message": "died"}], "died"),
        ([part("a", 1), part("", 1, "abort")], "the server ended it: abort"),
        ([part("a", 1), b'{"choices": ['], "an event that is not JSON: '{\"choices\": ['"),
        ([part("a", 1), b"\xff\xfe"], "an event that is not JSON"),
        ([part("a", 1), b"[]"], "another form: Expected object, got array"),
        ([part("a", 1), b"{}"], "an event without choices: '{}'"),
        ([part("a", 1), {"choices": [3]}], "Expected object, got int - at $.choices[0]: "),
        (
            [part("a", 1), {"choices": [{"text": 3}]}],
            "Expected str | null, got int - at $.choices[0].text",
        ),
        (
            [part("a", 1), {"choices": [], "usage": []}],
            "Expected object | null, got array - at $.usage",
        ),
        ([part("a", 1), last_usage(-1)], "Expected int >= 0 - at $.usage.completion_tokens"),
        ([part("a", 1), last_usage(0)], "completion_tokens fell from 1 to 0"),
        ([part("a", 1)], "the stream ended before the answer was done"),
        ([part("a", 1), part("b"), b"[DONE]"], "no token was counted"),
    ],
)
def test_a_fault_inside_a_stream_is_told_and_keeps_what_came_before(data, error):
    reply = decode(exchange(*data), COMPLETIONS)
    assert reply.error is not None
    assert error in reply.error
    assert reply.events == ((1, 1),)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([delta(1, content="a"), {"error": {"message": "died"}}, b"[DONE]"], "died"),
        ([delta(1, content="a"), delta(1, "abort")], "the server ended it: abort"),
        ([delta(1, content="a"), {"object": "chat.completion.chunk"}], "an event without choices"),
        ([delta(1, content="a"), delta(content=3)], "Expected str | null, got int"),
        ([delta(1, content="a")], "the stream ended before the answer was done"),
        ([delta(1, content="a"), delta(content="b"), b"[DONE]"], "no token was counted"),
    ],
)
def test_a_fault_inside_a_chat_is_told_and_keeps_what_came_before(data, error):
    reply = decode(exchange(*data), CHAT)
    assert reply.error is not None
    assert error in reply.error
    assert reply.events == ((1, 1),)


def test_text_is_asked_where_text_is_given():
    assert json.loads(COMPLETIONS.body("m", "so it is", 5))["prompt"] == "so it is"
    assert json.loads(GENERATE.body("m", "so it is", 5))["text"] == "so it is"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([native("", 0, {"type": "abort", "message": "full"})], "the server ended it: full"),
        ([{"text": "a"}], "an event without completion_tokens: "),
        ([{"text": "a", "meta_info": {}}], "an event without completion_tokens"),
        ([native("", 0, {"type": "stop"})], "the answer brought no token"),
        ([], "the stream ended before the answer was done"),
    ],
)
def test_a_fault_of_the_native_dialect_is_told(data, error):
    reply = decode(exchange(*data), GENERATE)
    assert reply.error is not None
    assert error in reply.error


def test_an_error_status_is_told_with_its_body():
    raw = came((1.0, b"queue "), (1.0, b"is full"), status=503, done_s=1.0)
    assert decode(raw, COMPLETIONS) == Reply(error="status 503: 'queue is full'")


def test_a_broken_connection_is_told_and_keeps_what_came():
    broken = HttpUnreachable("http://h:1: reset")
    raw = exchange(part("a", 1), done=False, error=broken)
    assert decode(raw, COMPLETIONS) == Reply(
        events=((1, 1),), input_tokens=7, text="a", error="http://h:1: reset"
    )
    assert decode(RawExchange(sent_s=0.0, error=broken), COMPLETIONS).error == "http://h:1: reset"


@given(st.integers(0, 5000), st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_dealing_out_loses_no_token_and_is_even(tokens, arrivals):
    dealt = spread(tokens, arrivals)
    assert sum(share for _, share in dealt) == tokens
    shares = [share for _, share in dealt]
    assert all(share > 0 for share in shares)
    if tokens >= len(arrivals):
        assert len(dealt) == len(arrivals)
        assert max(shares) - min(shares) <= 1


class _OneByOne(type(COMPLETIONS)):  # type: ignore[misc]
    """Completions that are not heard a run at a time."""

    def said(self, data):
        return []


EVENTS = st.one_of(
    st.builds(
        lambda text, used, asked, reason: {
            "choices": [{"text": text, "finish_reason": reason}],
            **({} if used is None else {"usage": {"completion_tokens": used, **asked}}),
        },
        st.sampled_from(["a", "a", "b", "", None]),
        st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, None]),
        st.sampled_from([{}, {"prompt_tokens": 7}, {"prompt_tokens": 0}]),
        st.sampled_from([None, None, None, "length"]),
    ),
    st.sampled_from([{"choices": []}, {"error": "no"}, b"[DONE]", b"{", b"{}{}", b"", b'{"x":']),
)


def counted(event):
    return (
        event["usage"]["completion_tokens"] if isinstance(event, dict) and "usage" in event else 9
    )


@settings(max_examples=1000, deadline=None)
@given(st.lists(EVENTS, max_size=12), st.booleans())
def test_events_are_heard_alike_a_run_at_a_time_and_one_by_one(events, sort):
    if sort:  # else no run is long
        events.sort(key=counted)
    raw = exchange(*events)
    assert decode(raw, COMPLETIONS) == decode(raw, _OneByOne())


def test_an_input_of_no_token_is_told_by_a_run_too():
    events = [part("a", 1), part("b", 2), part("c", 3)]
    for used, event in enumerate(events[1:], 2):
        event["usage"] = {"prompt_tokens": 0, "completion_tokens": used}
    assert decode(exchange(*events, done=False), COMPLETIONS).input_tokens == 0


def bodies() -> list[tuple[Dialect, bytes, Reply]]:
    valid = [
        (COMPLETIONS, exchange(part("a", 1), part("\u4e16b", 4, "length"), b"[DONE]")),
        (COMPLETIONS, exchange(part("a"), part("b"), last_usage(5), b"[DONE]")),
        (GENERATE, exchange(native("a", 1), native("ab", 3, {"type": "length"}), b"[DONE]")),
        (
            CHAT,
            exchange(
                opening(0), delta(2, content="a"), delta(3, "length", reasoning="b"), b"[DONE]"
            ),
        ),
    ]
    return [(dialect, raw.body, decode(raw, dialect)) for dialect, raw in valid]


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32))
def test_a_stream_split_anywhere_says_the_same_and_corrupted_says_so_or_stays_whole(seed):
    rng = random.Random(seed)
    dialect, body, expected = rng.choice(bodies())
    edges = [0, *sorted(rng.choices(range(len(body) + 1), k=rng.randrange(8))), len(body)]
    chunks = [(float(at), body[a:b]) for at, (a, b) in enumerate(pairwise(edges))]
    raw = came(*chunks, done_s=99.0)
    reply = decode(raw, dialect)
    assert (reply.error, reply.text, reply.input_tokens) == (None, expected.text, 7)
    assert reply.output_tokens == expected.output_tokens

    at, length = rng.randrange(len(body)), rng.randrange(6)
    noise = rng.randbytes(rng.randrange(6))
    raw = came((1.0, body[:at] + noise + body[at + length :]), done_s=99.0)
    reply = decode(raw, dialect)
    assert reply.error is not None or reply.output_tokens > 0
