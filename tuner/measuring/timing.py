"""What one request did and when: all that a load hands to measuring."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """What one request did, in seconds on the load's clock (surface time for a rehearsal).

    `events` holds (arrival, new output tokens) of every event that carried tokens, in order.
    `due_s` is when an open loop owed it, None in a closed one. Tokens come from the server's own
    count, never from the number of events. `done_s` is when it ended, well or with `error`; a
    request that was cut off has neither.
    """

    stream: int
    index: int
    sent_s: float
    due_s: float | None = None
    events: tuple[tuple[float, int], ...]
    done_s: float | None
    input_tokens: int
    output_tokens: int
    requested_tokens: int
    error: str | None = None
    text: str = ""
    prompt: str = ""

    @property
    def came_s(self) -> float:
        """When it came to the server's door: latencies count from there. Who was due and could not
        be sent yet waited all the same."""
        return self.sent_s if self.due_s is None else self.due_s

    @property
    def cut(self) -> bool:
        """Whether nobody waited for its end."""
        return self.done_s is None and self.error is None

    def ended_well(self, since_s: float, until_s: float) -> bool:
        """Whether it came to a good end after the first and up to the second of these instants."""
        return self.error is None and self.done_s is not None and since_s < self.done_s <= until_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first event; None where none came."""
        return self.events[0][0] - self.came_s if self.events else None

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first event; None where no other came."""
        if len(self.events) < 2:
            return None
        (first_s, first_tokens), (last_s, _) = self.events[0], self.events[-1]
        return (last_s - first_s) / (sum(tokens for _, tokens in self.events) - first_tokens)

    @property
    def e2e_s(self) -> float | None:
        """Seconds to the end; None where nobody waited for it."""
        return None if self.done_s is None else self.done_s - self.came_s
