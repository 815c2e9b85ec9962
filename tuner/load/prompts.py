"""What is asked: token ids that no server has seen before, and lengths that need no first wave."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

FIRST_ID = 10
"""Below it lie the ids that tokenizers keep for themselves."""

_DIGITS = 4
_STRIDE = 2_654_435_761
_RUNG_BITS = 24
_POOL_TOKENS = 65_536


class Prompts:
    """Random token ids; no two prompts of a run start alike.

    The first ids of a prompt are a number in base `vocab_size`, different for every prompt of
    every rung, so that no prefix can be reused; the rest is cut out of one random sequence, since
    drawing each id afresh would cost the load its punctuality.
    """

    def __init__(self, *, seed: int, rung_index: int, vocab_size: int, longest: int) -> None:
        self._random = random.Random(f"{seed} {rung_index}")  # noqa: S311  # reproducible
        self._base = vocab_size - FIRST_ID
        self._offset = random.Random(seed).randrange(self._base**_DIGITS)  # noqa: S311
        self._next = rung_index << _RUNG_BITS
        ids = range(FIRST_ID, vocab_size)
        self._pool = self._random.choices(ids, k=max(_POOL_TOKENS, 2 * longest))

    def next(self, length: int) -> list[int]:
        """The next prompt of that many tokens."""
        head = self._number()[:length]
        rest = length - len(head)
        start = self._random.randrange(len(self._pool) - rest + 1)
        return head + self._pool[start : start + rest]

    def _number(self) -> list[int]:
        # A stride without a factor in common with the base visits every number once.
        number = (self._next * _STRIDE + self._offset) % self._base**_DIGITS
        self._next += 1
        digits = []
        for _ in range(_DIGITS):
            number, digit = divmod(number, self._base)
            digits.append(FIRST_ID + digit)
        return digits


@dataclass(frozen=True, slots=True)
class Asking:
    """A request to make; `done` tokens of its output lie before it, as part of its prompt."""

    input_tokens: int
    output_tokens: int
    done: int = 0


class Lengths:
    """How long the requests of a rung are: all alike, or those of a trace in an order of the seed.

    In a loop that has run for long, a request met at random has a uniform share of its output
    before it; starting there spares the wait for the first wave to spread out. The shares are
    stratified over the streams: each is uniform, together they leave no gap. Of a trace, a long
    answer is met more often: the first wave is drawn in proportion to output.
    """

    def __init__(
        self, lengths: Sequence[tuple[int, int]], *, streams: int, seed: int, rung_index: int
    ) -> None:
        rng = random.Random(f"{seed} {rung_index}")  # noqa: S311  # reproducible
        shares = [(index + rng.random()) / streams for index in range(streams)]
        rng.shuffle(shares)
        order = random.Random(f"{seed} {rung_index} trace")  # noqa: S311
        met = order.choices(lengths, weights=[output for _, output in lengths], k=streams)
        self._first = [_under_way(*pair, share) for pair, share in zip(met, shares, strict=True)]
        self._coming = cycle(order.sample(lengths, k=len(lengths)))
        self.longest = max(input_tokens + output for input_tokens, output in lengths)

    def first(self, stream: int) -> Asking:
        """The request that a stream is met with."""
        return self._first[stream]

    def next(self) -> Asking:
        """The next request of whichever stream asks."""
        return Asking(*next(self._coming))


def _under_way(input_tokens: int, output_tokens: int, share: float) -> Asking:
    left = 1 + int(share * output_tokens)
    return Asking(input_tokens, left, done=output_tokens - left)
