"""How long a stream waits after a failure."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tuner.http.exchange import RawExchange
from tuner.load.backoff import LONGEST_ASKED_S, LONGEST_S, backoff_s


def refused(status: int, said: bytes) -> RawExchange:
    return RawExchange(sent_s=0.0, status=status, headers=[(b"Retry-After", said)])


def test_each_failure_in_a_row_is_waited_for_twice_as_long_up_to_a_second():
    waits = [backoff_s(failures, RawExchange(sent_s=0.0)) for failures in (1, 2, 3, 30, 3000)]
    assert waits == [0.05, 0.1, 0.2, LONGEST_S, LONGEST_S]


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_says_when_is_waited_for_within_reason(status):
    assert backoff_s(1, refused(status, b"3")) == 3
    assert backoff_s(1, refused(status, b"86400")) == LONGEST_ASKED_S
    assert backoff_s(1, refused(status, b"9" * 400)) == LONGEST_ASKED_S
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=6), usegmt=True)
    assert 4 < backoff_s(1, refused(status, soon.encode())) <= 6


@pytest.mark.parametrize(
    "said",
    [b"0", b"", b"soon", b"-5", b"1e9", b"\xff", b"Wed, 21 Oct 2015 07:28:00 GMT", b"21 Oct"],
)
def test_what_says_nothing_is_not_waited_for(said):
    assert backoff_s(1, refused(503, said)) == 0.05


def test_only_a_refusal_is_asked_when_to_come_again():
    assert backoff_s(1, refused(500, b"7")) == 0.05
