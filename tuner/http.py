"""Small questions to a server: health, metrics, arguments, one generation.

Load goes through `tuner.transport`; these two rooms are the only ones that know httpx, and
`translated` is the one place where its exceptions become ours.
"""

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self

import httpx

from tuner.errors import HttpError, HttpProtocolError, HttpStatusError, HttpUnreachable

TRANSLATION: Mapping[type[Exception], type[HttpError]] = {
    httpx.HTTPError: HttpProtocolError,
    httpx.RequestError: HttpUnreachable,
    httpx.TransportError: HttpUnreachable,
    httpx.TimeoutException: HttpUnreachable,
    httpx.ConnectTimeout: HttpUnreachable,
    httpx.ReadTimeout: HttpUnreachable,
    httpx.WriteTimeout: HttpUnreachable,
    httpx.PoolTimeout: HttpUnreachable,
    httpx.NetworkError: HttpUnreachable,
    httpx.ConnectError: HttpUnreachable,
    httpx.ReadError: HttpUnreachable,
    httpx.WriteError: HttpUnreachable,
    httpx.CloseError: HttpUnreachable,
    httpx.ProxyError: HttpUnreachable,
    httpx.UnsupportedProtocol: HttpProtocolError,
    httpx.ProtocolError: HttpProtocolError,
    httpx.LocalProtocolError: HttpProtocolError,
    httpx.RemoteProtocolError: HttpProtocolError,
    httpx.DecodingError: HttpProtocolError,
    httpx.TooManyRedirects: HttpProtocolError,
    httpx.HTTPStatusError: HttpProtocolError,
    httpx.InvalidURL: HttpProtocolError,
    httpx.CookieConflict: HttpProtocolError,
    httpx.StreamError: HttpProtocolError,
    httpx.StreamConsumed: HttpProtocolError,
    httpx.StreamClosed: HttpProtocolError,
    httpx.ResponseNotRead: HttpProtocolError,
    httpx.RequestNotRead: HttpProtocolError,
}
"""What every exception of httpx means to us."""

_FOREIGN = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError)
_QUOTED_CHARACTERS = 200


@contextmanager
def translated(method: str, url: str) -> Iterator[None]:
    """Turn whatever httpx raises inside the block into our own error about `method url`.

    Raises: HttpUnreachable, HttpProtocolError.
    """
    try:
        yield
    except _FOREIGN as exc:
        found = str(exc) or type(exc).__name__
        raise TRANSLATION[type(exc)](f"{method} {public_url(url)}: {found}") from exc


def public_url(url: str) -> str:
    """The URL as it may be shown: neither user nor password nor query."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return "(a URL that cannot be read)"
    return str(parsed.copy_with(username=None, password=None, query=None, fragment=None))


def is_loopback(host: str) -> bool:
    """True where the host is this machine by its name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Http:
    """Asks one server small questions, each answered within `timeout_s` seconds or an error.

    A proxy of the environment is never used to reach this machine.

    Raises: HttpProtocolError where the base URL cannot be read.
    """

    def __init__(self, base_url: str, timeout_s: float = 10.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        with translated("GET", base_url):
            url = httpx.URL(self.base_url)
            if url.scheme not in ("http", "https") or not url.host:
                raise HttpProtocolError(
                    f"{public_url(base_url)} is not the address of a server",
                    hint="Give it as http://HOST:PORT.",
                )
            # Reading the certificate store takes longer than a probe; plain HTTP needs none of it.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.scheme == "http" else True
            self._client = httpx.AsyncClient(
                timeout=timeout_s, trust_env=not is_loopback(url.host), verify=verify
            )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(exc_type, exc, traceback)

    async def get_json(self, path: str) -> Any:
        """The JSON that a path answers.

        Raises: HttpUnreachable, HttpStatusError, HttpProtocolError (not JSON).
        """
        return _json(await self._send("GET", path))

    async def get_text(self, path: str) -> str:
        """The text that a path answers.

        Raises: HttpUnreachable, HttpStatusError, HttpProtocolError.
        """
        return _accepted(await self._send("GET", path)).text

    async def status(self, path: str) -> int:
        """The status that a path answers, whatever it is.

        Raises: HttpUnreachable, HttpProtocolError.
        """
        return (await self._send("GET", path)).status_code

    async def post_json(self, path: str, payload: Any, timeout_s: float | None = None) -> Any:
        """The JSON that a path answers to a JSON payload.

        Raises: HttpUnreachable, HttpStatusError, HttpProtocolError (not JSON).
        """
        return _json(await self._send("POST", path, payload, timeout_s))

    async def _send(
        self, method: str, path: str, payload: Any = None, timeout_s: float | None = None
    ) -> httpx.Response:
        url = self.base_url + path
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        with translated(method, url):
            try:
                # httpx's timeouts start afresh with every read: a dripping answer would hold us.
                async with asyncio.timeout(limit_s):
                    return await self._client.request(method, url, json=payload, timeout=limit_s)
            except TimeoutError as exc:
                raise httpx.ReadTimeout(f"no full answer within {limit_s:g} s") from exc


def _accepted(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    raise HttpStatusError(
        f"{_said(response)}: status {response.status_code}, {_quoted(response.text)}",
        status=response.status_code,
    )


def _json(response: httpx.Response) -> Any:
    try:
        return _accepted(response).json()
    except (json.JSONDecodeError, UnicodeDecodeError) as exc:
        raise HttpProtocolError(
            f"{_said(response)}: expected JSON, found {_quoted(response.text)}"
        ) from exc


def _said(response: httpx.Response) -> str:
    return f"{response.request.method} {public_url(str(response.url))}"


def _quoted(text: str) -> str:
    if not text:
        return "an empty body"
    short = text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "..."
    return repr(short)
