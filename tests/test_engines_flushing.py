"""Having a server forget: what each engine answers, against a server that answers just so."""

import asyncio
import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner import engines
from tuner.definitions.models import EngineDefinition
from tuner.engines import flushing
from tuner.engines.base import LaunchSpec
from tuner.http.client import Http
from tuner.load import run

Answer = tuple[int, str]


@contextmanager
def answering(answers: Sequence[Answer]) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these answers in turn, the last one over and over; and what was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, text = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def flush(name: str, url: str) -> str:
    definition = EngineDefinition.model_validate({"name": name})
    made = engines.create(LaunchSpec(engine=definition, model="m", folder=Path("/")))

    async def ask() -> str:
        async with Http(url) as http:
            return await made.flush(http)

    return run(ask())


@pytest.mark.parametrize(
    ("name", "path", "answers"),
    [
        ("sglang", "/flush_cache", [(200, "Cache flushed.")]),
        ("sglang", "/flush_cache", [(400, "busy"), (400, "busy"), (200, "Cache flushed.")]),
        ("vllm", "/reset_prefix_cache", [(200, '{"success":true}')]),
        ("vllm", "/reset_prefix_cache", [(200, "")]),
        ("vllm", "/reset_prefix_cache", [(200, '{"success": false}'), (200, '{"success": true}')]),
    ],
)
def test_it_is_asked_until_it_was_done(name, path, answers):
    with answering(answers) as (url, asked):
        assert flush(name, url) == ""
        assert asked == [path] * len(answers)


@pytest.mark.parametrize(
    ("name", "answer", "why"),
    [
        ("sglang", (400, "Requests are running."), "/flush_cache: status 400, 'Requests are"),
        ("vllm", (200, '{"success": false}'), "blocks are still held"),
        ("vllm", (500, "no"), "/reset_prefix_cache: status 500, 'no'"),
    ],
)
def test_what_holds_its_cache_for_long_is_said(monkeypatch, name, answer, why):
    monkeypatch.setattr(flushing, "PATIENCE_S", 0.15)
    with answering([answer]) as (url, asked):
        assert flush(name, url).startswith(why)
        assert len(asked) > 1


def test_an_engine_that_does_not_offer_it_is_asked_once():
    with answering([(404, "{}")]) as (url, asked):
        said = flush("vllm", url)
        assert said == "vLLM forgets prefixes only where VLLM_SERVER_DEV_MODE=1 is set"
        assert len(asked) == 1


def test_nobody_there_is_said_and_not_waited_for():
    with answering([(200, "")]) as (url, _):
        pass
    assert "refused" in asyncio.run(_asked(url))


async def _asked(url: str) -> str:
    async with Http(url) as http:
        return await flushing.flush(http, "/flush_cache", lambda status, text: "")
