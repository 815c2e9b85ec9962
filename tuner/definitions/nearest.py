"""What a misspelt word was probably meant to be. Pure."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, if any is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return near[0] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'high'?)`, or nothing where no known word is near."""
    near = nearest(word, known)
    return f" (did you mean '{near}'?)" if near else ""
