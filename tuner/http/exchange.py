"""One request and what came back, as it came."""

from array import array
from dataclasses import dataclass, field

from tuner.errors import HttpError


def _seconds() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class Tally:
    """How many pieces of answers came over all connections that share it."""

    pieces: int = 0


@dataclass(slots=True, kw_only=True)
class RawExchange:
    """One request and what came back, in seconds of `time.perf_counter`.

    It fills while the answer arrives. `pieces` are of the body, `arrivals_s` says when each came,
    `lags_s` how much later than the kernel each read was made, where that says. `done_s` is when
    the answer was complete; it stays None where the exchange was cut (no `error`) or failed
    (`error`, at `failed_s`). `stale` says that the server had closed the kept connection, so that
    it never saw the request.
    """

    sent_s: float
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    arrivals_s: "array[float]" = field(default_factory=_seconds)
    lags_s: "array[float]" = field(default_factory=_seconds)
    done_s: float | None = None
    failed_s: float | None = None
    error: HttpError | None = None
    stale: bool = False

    def add(self, at_s: float, piece: bytes) -> None:
        """Keep a piece of the body that came then."""
        self.pieces.append(piece)
        self.arrivals_s.append(at_s)

    @property
    def body(self) -> bytes:
        """All of the body that came."""
        return b"".join(self.pieces)

    def header(self, name: bytes) -> bytes:
        """The first value of a header by its lower-case name, empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name), b"")
