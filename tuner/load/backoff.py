"""How long a stream waits after a request that failed."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tuner.http.exchange import RawExchange

LONGEST_S = 1.0
LONGEST_ASKED_S = 10.0
"""A server that asks for more is not waited for so long: it would be a window without load."""
_FIRST_S = 0.05
_DOUBLED = 10
_REFUSED = (429, 503)


def backoff_s(failures: int, raw: RawExchange) -> float:
    """Real seconds to wait after so many failures in a row: twice as long each time, or as long as
    a server asks that refused the last of them."""
    own_s = min(LONGEST_S, _FIRST_S * 2.0 ** min(failures - 1, _DOUBLED))
    return max(own_s, min(_asked_s(raw), LONGEST_ASKED_S))


def _asked_s(raw: RawExchange) -> float:
    """What `Retry-After` says, seconds or a date (RFC 9110, section 10.2.3); 0 where nothing."""
    said = raw.header(b"retry-after").decode("ascii", "replace").strip()
    if raw.status not in _REFUSED or not said:
        return 0.0
    if said.isdecimal() and said.isascii():
        return float(said)
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return 0.0
    left_s = (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, left_s)
