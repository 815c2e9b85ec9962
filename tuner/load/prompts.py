"""What is asked: prompts that share what the policy says and nothing else, and their lengths.

A prompt is made of units: token ids, or words where a server takes text only.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Generic, TypeVar

from tuner.definitions.models import Prefix, SharedPrefix
from tuner.load.words import WORDS

FIRST_ID = 10
"""Below it lie the ids that tokenizers keep for themselves."""

Prompt = Sequence[int] | str
"""What stands in a request: token ids, or text."""
Unit = TypeVar("Unit")

_DIGITS = 4
_STRIDE = 2_654_435_761
_RUNG_BITS = 24
_POOL_UNITS = 8192
"""What makes a prompt new are its first units: what follows may be like that of another one."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A request to make; `done` tokens of its output lie before it, as part of its prompt.

    `number` says which of the workload's requests it is.
    """

    input_tokens: int
    output_tokens: int
    done: int = 0
    number: int = 0

    @property
    def prompt_tokens(self) -> int:
        """How long its prompt is to be."""
        return self.input_tokens + self.done


@dataclass(frozen=True, slots=True)
class WordRate:
    """How a server counts words: `per_word` tokens each, and its template's `around` them."""

    per_word: float = 1.0
    around: float = 0.0

    def words(self, tokens: int) -> int:
        """How many words make a prompt of about so many tokens, one at the least."""
        return max(1, round((tokens - self.around) / self.per_word))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """Whose prompts: a rung's on a seed, the `index`-th of `of` processes that share it.

    `longest` is the most tokens that a prompt may have. `texts` are questions that somebody
    recorded, by the number of their request.
    """

    seed: int
    rung_index: int
    longest: int
    prefix: Prefix = "cold"
    index: int = 0
    of: int = 1
    texts: Sequence[str] = ()


class Prompts(Generic[Unit]):
    """Prompts that share what `prefix` says.

    * cold: no two prompts of a seed start alike, whatever the rung and the process. The first units
      of each are a number in base of the alphabet, different for every prompt; the rest is cut out
      of one random sequence, since drawing each unit afresh would cost the load its punctuality.
    * warm: the same request has the same prompt each time, in every rung and process.
    * shared: the first units are those of one sequence that all rungs and processes have; after
      them a prompt goes on as a cold one.

    What a request has before it of its output comes last, and is never shared.
    """

    def __init__(
        self,
        plan: PromptPlan,
        alphabet: Sequence[Unit],
        join: Callable[[Sequence[Unit]], Prompt],
        *,
        units: Callable[[int], int] = lambda tokens: tokens,
    ) -> None:
        self._plan = plan
        self._alphabet = alphabet
        self._join = join
        self._units = units
        self._random = _random(plan.seed, plan.rung_index, plan.index)
        self._numbers = len(alphabet) ** _DIGITS
        self._offset = random.Random(plan.seed).randrange(self._numbers)  # noqa: S311
        self._next = (plan.rung_index << _RUNG_BITS) + plan.index
        longest = units(plan.longest)
        size = max(_POOL_UNITS, 2 * longest)
        self._pool = self._random.choices(alphabet, k=size)
        self._names = [_hash(text) for text in plan.texts]
        self._known: list[Unit] = []
        if plan.prefix != "cold":
            self._known = _random(plan.seed, "known").choices(alphabet, k=size)

    def next(self, asking: Asking) -> Prompt:
        """The prompt of the next request."""
        if self._plan.texts:
            return self._recorded(asking)
        length = self._units(asking.input_tokens)
        prompt = self._own(asking, length)
        if asking.done:
            prompt += self._stretch(self._units(asking.prompt_tokens) - length)
        return self._join(prompt)

    def name_of(self, asking: Asking) -> str:
        """A hash of the recorded question in a prompt, empty without one."""
        return self._names[asking.number] if self._names else ""

    def primers(self, lengths: Sequence[tuple[int, int]]) -> list[Prompt]:
        """What a server must have been asked before the prompts are as the policy says."""
        prefix = self._plan.prefix
        if prefix == "warm":
            return [self.next(Asking(*pair, 0, n)) for n, pair in enumerate(lengths)]
        if isinstance(prefix, SharedPrefix):
            longest = max(given for given, _ in lengths)
            return [self._join(self._shared(self._units(longest), prefix.shared))]
        return []

    def unheard(self, units: int, place: int) -> Prompt:
        """A prompt of so many units that no request of this seed has; another for each place."""
        head = self._digits(-1 - place)[:units]
        return self._join([*head, *self._pool[: units - len(head)]])

    def _own(self, asking: Asking, length: int) -> list[Unit]:
        prefix = self._plan.prefix
        if prefix == "warm":
            return self._warm(asking.number, length)
        if isinstance(prefix, SharedPrefix):
            shared = self._shared(length, prefix.shared)
            return shared + self._fresh(length - len(shared))
        return self._fresh(length)

    def _recorded(self, asking: Asking) -> Prompt:
        """A question as it was recorded, after a line of its own where nothing may be known."""
        parts = [self._plan.texts[asking.number]]
        if self._plan.prefix != "warm":
            parts.insert(0, str(self._join(self._fresh(_DIGITS))))
        if asking.done:
            parts.append(str(self._join(self._stretch(self._units(asking.done)))))
        return "\n".join(parts)

    def _fresh(self, length: int) -> list[Unit]:
        head = self._digits(self._next)[:length]
        self._next += self._plan.of
        return head + self._stretch(length - len(head))

    def _warm(self, number: int, length: int) -> list[Unit]:
        head = self._digits(number)[:length]
        rest = length - len(head)
        start = number * _STRIDE % (len(self._known) - rest + 1)
        return head + self._known[start : start + rest]

    def _shared(self, length: int, share: float) -> list[Unit]:
        return self._known[: round(share * length)]

    def _stretch(self, length: int) -> list[Unit]:
        start = self._random.randrange(len(self._pool) - length + 1)
        return self._pool[start : start + length]

    def _digits(self, number: int) -> list[Unit]:
        # A stride without a factor in common with the base visits every number once.
        left = (number * _STRIDE + self._offset) % self._numbers
        digits: list[Unit] = []
        for _ in range(_DIGITS):
            left, digit = divmod(left, len(self._alphabet))
            digits.append(self._alphabet[digit])
        return digits


def prompts_of_ids(plan: PromptPlan, vocab_size: int) -> Prompts[int]:
    """Prompts of random token ids, exactly as long as asked."""
    return Prompts(plan, range(FIRST_ID, vocab_size), lambda ids: ids)


def prompts_of_words(plan: PromptPlan, rate: WordRate) -> Prompts[str]:
    """Prompts of random words, about as long as asked."""
    return Prompts(plan, WORDS, " ".join, units=rate.words)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _random(*seed: object) -> random.Random:
    return random.Random(" ".join(map(str, seed)))  # noqa: S311  # reproducible


class Askings:
    """The requests of a rung: all alike, or those of a list in an order of the seed.

    In a loop that has run for long, a request met at random has a uniform share of its output
    before it; starting there spares the wait for the first wave to spread out. The shares are
    stratified over the streams: each is uniform, together they leave no gap. Of a list, a long
    answer is met more often: the first wave is drawn in proportion to output. Of `of` processes
    that play a rung together the `index`-th has its own of the requests that come after it.
    """

    def __init__(
        self,
        lengths: Sequence[tuple[int, int]],
        *,
        streams: int,
        seed: int,
        rung_index: int,
        index: int = 0,
        of: int = 1,
    ) -> None:
        rng = random.Random(f"{seed} {rung_index}")  # noqa: S311  # reproducible
        shares = [(index + rng.random()) / streams for index in range(streams)]
        rng.shuffle(shares)
        order = random.Random(f"{seed} {rung_index} trace")  # noqa: S311
        numbers = range(len(lengths))
        met = order.choices(numbers, weights=[output for _, output in lengths], k=streams)
        self._first = [
            _met(*lengths[number], share, number) for number, share in zip(met, shares, strict=True)
        ]
        self._coming = islice(cycle(order.sample(numbers, k=len(lengths))), index, None, of)
        self._lengths = lengths
        self.longest = max(input_tokens + output for input_tokens, output in lengths)

    def first(self, stream: int) -> Asking:
        """The request that a stream is met with."""
        return self._first[stream]

    def next(self) -> Asking:
        """The next request of whichever stream asks."""
        number = next(self._coming)
        return Asking(*self._lengths[number], 0, number)


def _met(input_tokens: int, output_tokens: int, share: float, number: int) -> Asking:
    left = 1 + int(share * output_tokens)
    return Asking(input_tokens, left, output_tokens - left, number)
