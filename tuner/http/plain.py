"""A text from a URL, for a process that imports little; no stream, no question that matters."""

import http.client
import urllib.error
import urllib.request
from ipaddress import ip_address
from urllib.parse import urlsplit

MAX_BYTES = 20_000_000


class NotThere(Exception):
    """The server answers, but has no such page: asking again would only disturb it."""


def get_text(url: str, key: str | None, timeout_s: float) -> str | None:
    """What a page says; None where no whole answer came in time.

    Raises: NotThere.
    """
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the server's own address
    handlers = [urllib.request.ProxyHandler({})] if _is_here(url) else []
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            return str(answer.read(MAX_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            if 400 <= error.code < 500:
                raise NotThere(f"status {error.code}") from error
        return None
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
