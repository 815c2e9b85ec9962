"""Having a server forget the prefixes that it keeps."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.errors import HttpError

if TYPE_CHECKING:
    from tuner.http.client import Http

PATIENCE_S = 5.0
"""What a load left under way may take a moment to end, and nothing is forgotten meanwhile."""
OK, NOT_FOUND = 200, 404
_AGAIN_S = 0.1


async def flush(http: "Http", path: str, refused: Callable[[int, str], str]) -> str:
    """POST to a path until it is not refused; why it still is after a while, empty where it is not.

    `refused` says so of a status and a text.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            status, text = await http.post(path)
        except HttpError as error:
            return error.message
        why = refused(status, text)
        if not why or status == NOT_FOUND or time.monotonic() > deadline:
            return why
        await asyncio.sleep(_AGAIN_S)
