"""What a source of requests makes of an answer while the clock runs."""

import json

import pytest

from tests.exchanges import came
from tuner.http.exchange import RawExchange
from tuner.load import RungPlan, Target
from tuner.load.readying import prompts_for
from tuner.load.source import Asker

CHOICE = {"text": "a b", "finish_reason": "length"}
USAGE = {"prompt_tokens": 4, "completion_tokens": 2}
WHOLE = {"choices": [CHOICE], "usage": USAGE}


@pytest.fixture
def asker() -> Asker:
    target = Target(base_url="http://127.0.0.1:1", api="completions", model="m")
    plan = RungPlan(
        concurrency=1, lengths=((4, 2),), warmup_s=1, window_s=1, prompt_seed=1, order_seed=1,
        rung_index=0,
    )  # fmt: skip
    return Asker(target, prompts_for(target, plan))


def answer(body: bytes, kind: bytes = b"application/json", status: int = 200) -> RawExchange:
    headers = [(b"content-type", kind)]
    return came((2.0, body), sent_s=1.0, status=status, headers=headers, done_s=2.0)


@pytest.mark.parametrize(
    ("body", "well"),
    [
        (WHOLE, True),
        ({**WHOLE, "error": None}, True),
        ({"error": {"message": "no"}}, False),
        ({**WHOLE, "error": "no"}, False),
    ],
)
def test_an_answer_in_one_piece_is_a_failure_where_it_says_so(asker, body, well):
    data = json.dumps(body).encode()
    assert asker.seems_well(answer(data)) is well
    assert asker.seems_well(answer(b"data: %s\n\n" % data, b"text/event-stream")) is well
    assert not asker.seems_well(answer(data, status=503))


def test_an_answer_without_a_body_is_a_failure(asker):
    assert not asker.seems_well(RawExchange(sent_s=1.0, status=200, done_s=2.0))
