"""The ways to a server: TLS, a proxy, IPv6; each in a load of its own."""

import asyncio
import json
import logging
import ssl
import subprocess
import sys

import pytest

from tests.test_connection import OK, server
from tests.test_load_channels import no_proxies as no_proxies  # a fixture
from tests.test_load_player import REPOSITORY, plan
from tuner.errors import HttpUnreachable
from tuner.http.client import Http
from tuner.load import Played, Target, play, run

TOKEN = b'data: {"choices":[{"text":"a","finish_reason":%s}],"usage":{"completion_tokens":%d}}\n\n'


_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
    "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -out {} -keyout {}"
)


async def engine(reader, writer):
    """Answers every request with ten tokens, one each 5 ms."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        body = await reader.readexactly(length)
        wanted = int(body.partition(b'"max_tokens":')[2].partition(b",")[0])
        writer.write(OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(1, wanted + 1):
            if writer.is_closing():
                return
            event = TOKEN % (b'"length"' if number == wanted else b"null", number)
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await asyncio.sleep(0.005)
        if not writer.is_closing():
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def load(url: str) -> Played:
    target = Target(base_url=url, api="completions", model="m")
    return await play(target, plan(2, lengths=((4, 10),), window_s=0.5))


def whole(played: Played) -> int:
    assert all(timing.error is None for timing in played.timings)
    done = [timing for timing in played.timings if timing.done_s is not None]
    assert all(timing.output_tokens == timing.requested_tokens for timing in done)
    return len(done)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) of localhost, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    files = str(folder / "cert.pem"), str(folder / "key.pem")
    try:
        subprocess.run(_MAKE.format(*files).split(), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate with")
    return files


def secured(certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def test_a_load_over_tls_is_whole_and_says_that_it_is_not_recorded(
    certificate, monkeypatch, caplog
):
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])

    async def ask():
        async with server(engine, secure=secured(certificate)) as port:
            return await load(f"https://localhost:{port}")

    with caplog.at_level(logging.WARNING):
        played = run(ask())
    assert whole(played) > 4
    assert played.lags_s == type(played.lags_s)("d")  # nobody says how late it was
    assert not played.stamped
    assert "over TLS: timed through stock httpx, whose own latency is included" in caplog.text


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(certificate):
    async def ask():
        async with server(engine, secure=secured(certificate)) as port:
            async with Http(f"https://localhost:{port}") as http:
                with pytest.raises(HttpUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
                    await http.get_json("/v1/models")
            return await load(f"https://localhost:{port}")

    played = run(ask())
    assert {timing.output_tokens for timing in played.timings} == {0}
    assert all("CERTIFICATE_VERIFY_FAILED" in (timing.error or "") for timing in played.timings)


def test_a_load_through_a_proxy_is_whole_and_says_that_it_is_not_recorded(monkeypatch, caplog):
    hosts = set()

    async def proxy(reader, writer):
        """Answers for the server: what matters is that it was asked."""
        kept = reader.readuntil

        async def readuntil(separator):
            head = await kept(separator)
            hosts.add(head.split()[1])
            return head

        reader.readuntil = readuntil
        await engine(reader, writer)

    async def ask():
        async with server(proxy) as port:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
            return await load("http://engine.invalid:8000")

    with caplog.at_level(logging.WARNING):
        played = run(ask())
    assert whole(played) > 4
    assert hosts == {b"http://engine.invalid:8000/v1/completions"}
    assert "through a proxy: timed through stock httpx" in caplog.text


def test_a_load_over_ipv6_is_recorded():
    async def ask():
        async with server(engine, "::1") as port:
            return await load(f"http://[::1]:{port}")

    played = run(ask())
    assert whole(played) > 4
    assert played.stamped
    assert len(played.lags_s) > 10


def test_a_load_by_name_is_recorded():
    async def ask():
        async with server(engine) as port:
            return await load(f"http://localhost:{port}")

    assert whole(run(ask())) > 4


_FEW_FILES = """
import json, resource, sys
from tests.test_load_player import REPOSITORY, plan
from tuner.load import Target, play, run
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
played = run(play(Target(base_url=sys.argv[1], api="completions", model="m"), plan(64)))
errors = sorted({timing.error or "none" for timing in played.timings})
print(json.dumps([errors, len({t.stream for t in played.timings if t.done_s and not t.error})]))
"""


def test_streams_without_a_descriptor_fail_in_words_and_the_others_go_on():
    async def ask():
        async with server(engine) as port:
            url = f"http://127.0.0.1:{port}"
            asked = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _FEW_FILES, url, cwd=REPOSITORY, stdout=subprocess.PIPE
            )
            said, _ = await asked.communicate()
            return url, json.loads(said)

    url, (errors, served) = run(ask())
    assert set(errors) == {"none", f"{url}: Too many open files"}
    assert 10 < served < 40
