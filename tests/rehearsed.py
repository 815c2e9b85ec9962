"""Rehearsal engines as real processes, and the least that is needed to talk to them."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = [
    {"concurrency": 1, "output_tok_s": 10.0, "ttft_ms": 300.0},
    {"concurrency": 10, "output_tok_s": 40.0, "ttft_ms": 600.0},
    {"concurrency": 100, "output_tok_s": 200.0, "ttft_ms": 1500.0},
]
STARTUP = {"distributed_s": 1, "weights_s": 1, "kv_cache_s": 1, "graphs_s": 1, "warmup_s": 1}
PATIENCE_S = 60.0
READY = "The server is fired up and ready to roll!"


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """A rehearsal engine that runs, or ran."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for(self, text: str) -> str:
        """The log, once it says this."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.log:
            assert time.monotonic() < deadline_s, f"{text!r} never came:\n{self.log}"
            assert self.process.poll() is None or text in self.log, self.log
            time.sleep(0.01)
        return self.log

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_S)

    def ask(self, path: str, payload: Any = None, timeout_s: float = PATIENCE_S) -> tuple[int, str]:
        """Status and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            body = None if payload is None else json.dumps(payload)
            connection.request("GET" if body is None else "POST", path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def json(self, path: str, payload: Any = None) -> Any:
        status, body = self.ask(path, payload)
        assert status == 200, body
        return json.loads(body)

    def events(self, path: str, payload: dict[str, Any]) -> list[Any]:
        """The events of a streamed answer, without its `[DONE]`, which must be there."""
        status, body = self.ask(path, {**payload, "stream": True})
        assert status == 200, body
        *events, done = [part.removeprefix("data: ") for part in body.split("\n\n") if part]
        assert done == "[DONE]"
        return [json.loads(event) for event in events]

    def metric(self, name: str) -> float:
        status, text = self.ask("/metrics")
        found = re.search(rf"^sglang:{name}\{{.*\}} (\S+)$", text, re.MULTILINE)
        assert status == 200
        assert found, text
        return float(found[1])

    def hold(self, tokens: int = 20_000) -> socket.socket:
        """A stream that has begun and has long to go."""
        body = json.dumps(generate(tokens, stream=True)).encode()
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        wire.sendall(b"POST /generate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert wire.recv(1)
        return wire


def generate(tokens: int, **more: Any) -> dict[str, Any]:
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return {"input_ids": [17, 18, 19], "sampling_params": sampling, **more}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def launched(
    folder: Path,
    *argv: str,
    port: int | None = None,
    env: dict[str, str] | None = None,
    **surface: Any,
) -> Iterator[Rehearsed]:
    """An engine on a surface of these entries; it need not be ready, and is gone afterwards."""
    document = {"time_scale": 50, "table": TABLE, "startup": STARTUP, **surface}
    path = folder / "surface.yaml"
    path.write_text(json.dumps(document))
    port = port or free_port()
    log_path = folder / f"{port}.log"
    words = ["-m", "tuner.rehearsal", "--surface", str(path), "--model-path", "toy"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words, "--port", str(port), *argv],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Rehearsed(process=process, port=port, log_path=log_path)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def serving(folder: Path, *argv: str, **more: Any) -> Iterator[Rehearsed]:
    """The same, once it is ready."""
    with launched(folder, *argv, **more) as engine:
        engine.wait_for(READY)
        yield engine
