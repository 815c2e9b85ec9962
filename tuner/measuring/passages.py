"""Fixed passages that every launch continues, so that what it says can be compared. Pure."""

import random
from collections.abc import Sequence

OUTPUT_TOKENS = 32
"""Of each continuation: enough to leave the passage behind, few enough to wait for."""

TEXTS: Sequence[str] = (
    "The harbour lay quiet in the early morning. Fishing boats were coming home one after another,"
    " and on the quay the first buyers had already lined up beside the scales. An old man with a"
    " lantern walked along the wall and counted the masts, as he had done every day since",
    "Water boils at a lower temperature on a mountain than at the sea, because the pressure of the"
    " air above it is smaller. A cook who does not know this will wonder why the beans stay hard."
    " The rule of thumb is that for every three hundred metres",
    'def moving_average(values, width):\n    """Return the mean of each window."""\n'
    "    if width < 1:\n        raise ValueError('width must be at least 1')\n"
    "    total = sum(values[:width])\n    means = [total / width]\n    for",
    "Monday: 12 orders, 340 euros. Tuesday: 15 orders, 410 euros. Wednesday: 9 orders, 255 euros."
    " Thursday: 18 orders, 502 euros. Friday: 21 orders, 615 euros. Saturday: 30 orders, 880 euros."
    " Over the week that makes",
    "Question: A train leaves the station at nine and travels at eighty kilometres an hour. A"
    " second train leaves half an hour later on the same line at a hundred kilometres an hour."
    " When does the second train catch up with the first?\nAnswer: Let us begin with",
    "Der Zug hielt mitten auf der Strecke, und niemand wusste, warum. Draussen lag Schnee auf den"
    " Feldern, im Wagen war es warm und still. Ein Kind fragte seine Mutter, ob sie heute noch"
    " ankommen, und sie antwortete,",
    '{"name": "north-wall sensor", "unit": "celsius", "readings": [{"at": "06:00", "value": 4.1},'
    ' {"at": "07:00", "value": 4.6}, {"at": "08:00", "value": 5.9}, {"at": "09:00", "value":',
    "A contract is made when one side offers and the other accepts. It need not be written down,"
    " though it is wise to do so, since memories differ. If one side breaks it, the other may ask"
    " for what was promised, or, where that is no longer possible,",
)
"""Prose, reasoning, code, numbers, a second language: a model that was trained is fairly sure of
how each goes on, and its own mistakes show."""

_IDS = 48
_FIRST_ID, _LAST_ID = 10, 1000
"""Ids that every tokenizer has; below lie those that they keep for themselves."""


def unwritten() -> list[list[int]]:
    """As many passages of token ids, always the same, for a server that reads no text."""
    drawn = random.Random("passages")  # noqa: S311 - no secret
    ids = range(_FIRST_ID, _LAST_ID)
    return [drawn.choices(ids, k=_IDS) for _ in TEXTS]
