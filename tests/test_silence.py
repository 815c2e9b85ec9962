"""Which of several servers gave no token, and whether one could be expected."""

import array

import pytest

from tuner.load import Played
from tuner.measuring.measurement import RequestTiming, measure
from tuner.night.silence import SILENCE, silences, silent


def timing(stream: int, sent_s: float, *events_s: float, done_s: float | None = None):
    return RequestTiming(
        stream=stream,
        index=0,
        sent_s=sent_s,
        events=tuple((at_s, 1) for at_s in events_s),
        done_s=done_s,
        input_tokens=8,
        output_tokens=len(events_s),
        requested_tokens=8,
    )


def played(*timings: RequestTiming) -> Played:
    """With a window from 10 to 40 s."""
    return Played(timings=timings, start_s=10.0, end_s=40.0, lags_s=array.array("d"))


@pytest.mark.parametrize(
    ("of_second", "mute"),
    [
        ([timing(1, 5.0)], {1}),  # waits all the while
        ([timing(1, 5.0, 6.0, 7.0)], {1}),  # fell silent before the window
        ([timing(1, 5.0, 20.0)], set()),
        ([timing(1, 24.0)], {1}),
        ([timing(1, 26.0)], set()),  # asked too late to expect anything
        ([timing(1, 1.0, 2.0, done_s=3.0)], set()),  # nothing asked of it any more
        ([], set()),
    ],
)
def test_a_server_is_silent_that_was_asked_and_gave_nothing(of_second, mute):
    assert silent(played(timing(0, 1.0, 15.0), *of_second), 2) == mute


def doubts(found: Played, servers: int) -> list[str]:
    rung = measure(found.timings, concurrency=2, start_s=10.0, end_s=40.0, gpus=1)
    given = silences(rung, found, servers)
    assert all(doubt.voids and doubt.rule == SILENCE for doubt in given)
    return [doubt.said for doubt in given]


def test_a_rung_without_a_token_and_one_that_lacks_a_server_are_void():
    first, second = timing(0, 1.0, 15.0, 16.0), timing(1, 5.0)
    assert doubts(played(first, timing(1, 5.0, 15.0)), 2) == []
    assert doubts(played(first, second), 2) == ["no token from server 2 of 2 in a window of 30 s"]
    assert doubts(played(timing(0, 5.0), second), 2) == ["no token in a window of 30 s"]
    assert doubts(played(), 1) == ["no token in a window of 30 s"]
