"""The toy language of a rehearsal: what a stream says, and how likely it was. Pure.

A greedy model that looks at one token: all tokens lie on one ring, and the likeliest next token is
the neighbour. So the output of a prompt is a stretch of the ring, and texts and token ids of any
stretch can be cut from strings made once, however many streams there are. A *drifting* model walks
another ring of the same words. Log-probabilities are invented, but always the same for the same
pair of tokens, and those of the ring's own continuation are high.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

SIZE = 4096
FIRST_ID = 10_000
"""Ids have five digits and words five characters, so that a stretch is a slice."""
REPEATED_ID = 0
_ROUNDS = 2
_LETTERS = "bdfghjklmnprstvz"
_VOWELS = "aeio"
TIES = 0.1
"""The share of tokens after which two are all but equally likely, so that rounding decides."""
_TIE_NAT = 0.004
_STEPS: Mapping[str, int] = {"own": 1597, "drifting": 2731}
"""How far apart the neighbours of a ring lie among the words; odd, so that all are visited."""
_OFFSET = 11

Ring = Literal["own", "drifting"]
Toss = Callable[[], bool]


def _word(index: int) -> str:
    high, low = divmod(index, 64)
    syllables = (_LETTERS[part // 4] + _VOWELS[part % 4] for part in (high, low))
    return " " + "".join(syllables)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Circle:
    """A ring as its tokens in order, where each lies, and what a walk along it spells."""

    tokens: list[int]
    places: dict[int, int]
    text: str
    ids: str


@cache
def _circle(ring: Ring) -> _Circle:
    tokens = [(place * _STEPS[ring] + _OFFSET) % SIZE for place in range(SIZE)]
    return _Circle(
        tokens=tokens,
        places={token: place for place, token in enumerate(tokens)},
        text="".join(map(_word, tokens)) * _ROUNDS,
        ids="".join(f"{FIRST_ID + token}," for token in tokens) * _ROUNDS,
    )


def start(prompt: Sequence[int], ring: Ring = "own") -> int:
    """Where on the ring the continuation of a prompt begins."""
    return (_circle(ring).places[_index(prompt[-1] if prompt else 0)] + 1) % SIZE


def text(place: int, count: int, ring: Ring = "own") -> str:
    """What `count` tokens from a place on say; plain ASCII, nothing to escape in JSON."""
    return _cut(_circle(ring).text, place, count, 5)


def ids_json(place: int, count: int, ring: Ring = "own") -> str:
    """Their ids as the inside of a JSON array."""
    return _cut(_circle(ring).ids, place, count, 6)[:-1]


def ids(place: int, count: int, ring: Ring = "own") -> list[int]:
    """Their ids."""
    tokens = _circle(ring).tokens
    return [FIRST_ID + tokens[(place + step) % SIZE] for step in range(count)]


def walk(prompt: Sequence[int], count: int, rings: Sequence[Ring], toss: Toss) -> list[int]:
    """`count` tokens after a prompt, said one by one, each on the next of the `rings` and on the
    last of them from then on; `toss` decides between two that tie."""
    said: list[int] = []
    previous = prompt[-1] if prompt else 0
    for step in range(count):
        ring = rings[min(step, len(rings) - 1)]
        tie = tied(previous, ring)
        previous = tie if tie is not None and toss() else likeliest(previous, ring)
        said.append(previous)
    return said


def words(tokens: Sequence[int]) -> str:
    """What tokens of the language say."""
    return "".join(_word(_index(token)) for token in tokens)


def tokens_of(text: str) -> list[int]:
    """The tokens of a text: words of the language as themselves, anything else four characters a
    token."""
    tokens, at = [], 0
    while at < len(text):
        token = _token_of(text[at : at + 5])
        width = 4 if token is None else 5
        tokens.append(_hash(*text[at : at + width].encode()) if token is None else token)
        at += width
    return tokens


def logprob(previous: int, token: int, ring: Ring = "own") -> float:
    """The log-probability of a token after another: -0.02 to -0.6 for the likeliest one, and all
    but the same for the one that ties with it."""
    best = -0.02 - 0.58 * _share(previous, 1)
    if token == likeliest(previous, ring):
        return best
    if token == tied(previous, ring):
        return best - _TIE_NAT * _share(previous, 2)
    return -4.0 - 6.0 * _share(previous, token)


def top(previous: int, count: int, ring: Ring = "own") -> list[tuple[float, int]]:
    """The likeliest tokens after another with their log-probabilities, best first."""
    best = likeliest(previous, ring)
    others = [FIRST_ID + _hash(previous, rank) % SIZE for rank in range(1, count)]
    found = {best: logprob(previous, best, ring)}
    tie = tied(previous, ring)
    if tie is not None and count > 1:
        found[tie] = logprob(previous, tie, ring)
        others = others[1:]
    for rank, other in enumerate(others):
        found.setdefault(other, -2.0 - rank - _share(previous, other))
    return sorted(((value, token) for token, value in found.items()), reverse=True)


def likeliest(previous: int, ring: Ring = "own") -> int:
    """The token that a greedy model says next."""
    return ids(start([previous], ring), 1, ring)[0]


def tied(previous: int, ring: Ring = "own") -> int | None:
    """The token that is as likely as the likeliest but for rounding; None where there is none."""
    if _share(previous, 3, 7) >= TIES:
        return None
    return ids(start([previous], ring) + 1, 1, ring)[0]


def _token_of(word: str) -> int | None:
    """The token whose word this is; None for anything else."""
    if len(word) < 5 or word[0] != " ":
        return None
    parts = (_LETTERS.find(word[1]), _VOWELS.find(word[2]), _LETTERS.find(word[3]))
    digits = (*parts, _VOWELS.find(word[4]))
    if -1 in digits:
        return None
    return FIRST_ID + (digits[0] * 4 + digits[1]) * 64 + digits[2] * 4 + digits[3]


def _index(token: int) -> int:
    inside = token - FIRST_ID
    return inside if 0 <= inside < SIZE else _hash(token) % SIZE


def _cut(whole: str, place: int, count: int, width: int) -> str:
    if count > SIZE:
        around, rest = divmod(count, SIZE)
        once = whole[place * width : (place + SIZE) * width]
        return once * around + once[: rest * width]
    return whole[place * width : (place + count) * width]


def _share(*parts: int) -> float:
    return _hash(*parts) / 0xFFFFFFFF


def _hash(*parts: int) -> int:
    """FNV-1a over whole numbers."""
    value = 0x811C9DC5
    for part in parts:
        value = ((value ^ (part & 0xFFFFFFFF)) * 0x01000193) & 0xFFFFFFFF
        value ^= value >> 15
    return value
