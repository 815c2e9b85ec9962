"""Small questions to a server, and the stock client for what cannot be recorded.

This room and its transport are the only ones that know httpx; `translated` is the one place where
its exceptions become ours.
"""

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from time import perf_counter
from types import TracebackType
from typing import Any, Self
from urllib.request import getproxies, proxy_bypass

import httpx

from tuner.errors import HttpError, HttpProtocolError, HttpStatusError, HttpUnreachable
from tuner.http.exchange import RawExchange, Tally
from tuner.http.transport import RecordingTransport, head_bytes

LOAD_HEADERS = {"content-type": "application/json", "accept": "*/*", "accept-encoding": "identity"}

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
_PORTS = range(1, 65536)
MAX_ANSWER_BYTES = 20_000_000
"""More than any question to a server is answered with; metrics and arguments are the longest."""
_KEPT = ("content-type", "location")


@contextmanager
def translated(method: str, url: str) -> Iterator[None]:
    """Turn whatever httpx raises inside the block into our own error about `method url`.

    Raises: HttpUnreachable, HttpProtocolError.
    """
    try:
        yield
    except _FOREIGN as exc:
        found = (str(exc) or type(exc).__name__).removeprefix(f"{_origin(url)}: ")
        raise TRANSLATION[type(exc)](f"{method} {public_url(url)}: {found}") from exc


def _origin(url: str) -> str:
    """Where a connection says that it was; said before, it is left out."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


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

    A proxy of the environment is never used to reach this machine. `key` is the server's API key.

    Raises: HttpProtocolError where the base URL cannot be read.
    """

    def __init__(self, base_url: str, timeout_s: float = 10.0, key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        url = server_url(self.base_url)
        if url.scheme == "http" and not needs_proxy(url):
            # Beside a load that is being timed, a probe must cost little of the same thread.
            self._client = httpx.AsyncClient(
                timeout=timeout_s,
                trust_env=False,
                transport=RecordingTransport(),
                headers=authorization(key),
            )
        else:
            self._client = httpx.AsyncClient(
                timeout=timeout_s, trust_env=not is_loopback(url.host), headers=authorization(key)
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

    async def post(self, path: str) -> tuple[int, str]:
        """The status and the text that a path answers to a POST of nothing, whatever they are.

        Raises: HttpUnreachable, HttpProtocolError.
        """
        response = await self._send("POST", path)
        return response.status_code, response.text

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
                async with (
                    asyncio.timeout(limit_s),
                    self._client.stream(method, url, json=payload, timeout=limit_s) as response,
                ):
                    return await _whole(response)
            except TimeoutError as exc:
                raise httpx.ReadTimeout(f"no full answer within {limit_s:g} s") from exc


class StockChannel:
    """A stock httpx client of its own: its pool slows down with every live connection."""

    def __init__(
        self,
        url: str,
        stall_s: float,
        context: ssl.SSLContext,
        key: str | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._url = url
        self._tally = tally or Tally()
        self._headers = {**LOAD_HEADERS, **authorization(key)}
        self._client = httpx.AsyncClient(
            timeout=stall_s, verify=context, trust_env=not is_loopback(server_url(url).host)
        )
        self._task: asyncio.Task[None] | None = None
        self.heard = False
        """True once the server answered something."""
        self.pieces = 0
        """How many pieces of an answer under way came so far."""
        self.ready = True
        """Whether its own pool has a connection is not known."""

    async def open(self) -> None:
        """Nothing: httpx connects when it must."""

    async def post(self, body: bytes) -> RawExchange:
        """Send a body and wait for the end of the answer. Raises: HttpUnreachable."""
        raw = RawExchange(sent_s=perf_counter())
        self._task = asyncio.ensure_future(self._fill(raw, body))
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()
        self.pieces = 0
        if not self._task.cancelled():
            self._task.result()
        return raw

    def cut(self) -> None:
        """Leave what is under way unfinished, at once."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Cut, and let go of everything."""
        self.cut()
        await self._client.aclose()

    async def _fill(self, raw: RawExchange, body: bytes) -> None:
        async def trace(event: str, info: dict[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                raw.sent_s = perf_counter()

        try:
            with translated("POST", self._url):
                async with self._client.stream(
                    "POST",
                    self._url,
                    content=body,
                    headers=self._headers,
                    extensions={"trace": trace},
                ) as response:
                    raw.status, raw.headers = response.status_code, response.headers.raw
                    async for chunk in response.aiter_raw():
                        raw.add(perf_counter(), chunk)
                        self.heard, self.pieces = True, len(raw.pieces)
                        self._tally.pieces += 1
            raw.done_s = perf_counter()
        except HttpError as exc:
            if isinstance(exc.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
            raw.error, raw.failed_s = exc, perf_counter()


def authorization(key: str | None) -> dict[str, str]:
    """The header that carries an API key, none without one."""
    return {} if key is None else {"authorization": f"Bearer {key}"}


def request_head(method: str, url: str, key: str | None = None) -> bytes:
    """What every load request starts with, up to where its content-length follows.

    Raises: HttpProtocolError where the URL cannot be read.
    """
    headers = {**LOAD_HEADERS, **authorization(key)}
    request = httpx.Request(method, server_url(url), headers=headers)
    request.headers.pop("content-length", None)
    return head_bytes(request).removesuffix(b"\r\n")


def server_url(url: str) -> httpx.URL:
    """A URL that names a server. Raises: HttpProtocolError."""
    with translated("GET", url):
        parsed = httpx.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise HttpProtocolError(
            f"{public_url(url)} is not the address of a server",
            hint="Give it as http://HOST:PORT.",
        )
    if not _resolvable(parsed.host) or not (parsed.port is None or parsed.port in _PORTS):
        raise HttpProtocolError(
            f"{public_url(url)} is not the address of a server: no host has such a name or port",
            hint=f"Give it as http://HOST:PORT, the port from 1 to {_PORTS[-1]}.",
        )
    return parsed


def _resolvable(host: str) -> bool:
    """Whether a host's name can be asked for at all: no label of it is empty or too long."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def needs_proxy(url: httpx.URL) -> bool:
    """True where the environment wants this URL to be reached through a proxy."""
    if is_loopback(url.host):
        return False
    proxies = getproxies()
    named = url.scheme in proxies or "all" in proxies
    return named and not proxy_bypass(url.host)


def tls_context() -> ssl.SSLContext:
    """The certificates that TLS is checked against; reading them takes a while."""
    return httpx.create_ssl_context()


async def _whole(response: httpx.Response) -> httpx.Response:
    """The response with its body, which nobody has to send to its end. Raises HttpProtocolError."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise HttpProtocolError(
                f"{_said(response)}: an answer of more than {MAX_ANSWER_BYTES} bytes, expected a "
                "short one"
            )
    return httpx.Response(
        response.status_code,
        headers={name: response.headers[name] for name in _KEPT if name in response.headers},
        content=bytes(body),
        request=response.request,
    )


def _accepted(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    if response.has_redirect_location:
        target = public_url(response.headers["location"])
        raise HttpStatusError(
            f"{_said(response)}: sends on to {target}, expected an answer",
            status=response.status_code,
            hint="Give the address of the server itself.",
        )
    raise HttpStatusError(
        f"{_said(response)}: status {response.status_code}, {_quoted(response.text)}",
        status=response.status_code,
    )


def _json(response: httpx.Response) -> Any:
    text = _accepted(response).text
    try:
        answer = response.json()
        json.dumps(answer, ensure_ascii=False).encode()  # half a character could not be written
    except (ValueError, RecursionError) as exc:
        raise HttpProtocolError(f"{_said(response)}: expected JSON, found {_quoted(text)}") from exc
    return answer


def _said(response: httpx.Response) -> str:
    return f"{response.request.method} {public_url(str(response.url))}"


def _quoted(text: str) -> str:
    if not text:
        return "an empty body"
    short = text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "..."
    return repr(short)
