"""A server that answers with whatever `answers.json` beside it says, however wrong. No imports of
ours: it stands where an engine would.

`{"/path": ANSWER, "*": ANSWER for all others}`, where an answer is

* `{"status": 200, "type": "application/json", "body": "..."}`, each with that default
* `{"raw": "..."}`, bytes as latin-1
* either with `"then": "hang"` (silence) or `"endless"` (the body again and again)
* a list of these: one a request, the last for all further ones

`"log"` are lines that it prints first. With `"waits"` it listens nowhere, and makes a file
`waiting`.
"""

import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    answers = json.loads((HERE / "answers.json").read_text())
    for line in answers.get("log", ["starting"]):
        print(line, flush=True)
    while answers.get("waits"):
        (HERE / "waiting").touch()
        time.sleep(0.05)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            wire, _ = listener.accept()
            threading.Thread(target=_serve, args=(wire, answers), daemon=True).start()


def _serve(wire: socket.socket, answers: dict[str, Any]) -> None:
    with wire:
        try:
            while path := _asked(wire):
                answer = _next(answers.get(path, answers["*"]))
                wire.sendall(_bytes(answer, keep="then" not in answer))
                if answer.get("then") == "hang":
                    time.sleep(60)
                while answer.get("then") == "endless":
                    wire.sendall(1000 * answer.get("body", "x").encode())
                if "raw" in answer:
                    return
        except OSError:
            return


def _next(answer: Any) -> Any:
    if isinstance(answer, list):
        return answer.pop(0) if len(answer) > 1 else answer[0]
    return answer


def _asked(wire: socket.socket) -> str:
    request = b""
    while b"\r\n\r\n" not in request:
        piece = wire.recv(65536)
        if not piece:
            return ""
        request += piece
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = next(
        (int(line.split(":")[1]) for line in lines if line.startswith("content-length")), 0
    )
    while len(body) < length:
        body += wire.recv(65536)
    return head.split()[1].decode()


def _bytes(answer: Any, *, keep: bool) -> bytes:
    if "raw" in answer:
        return str(answer["raw"]).encode("latin-1")
    body = str(answer.get("body", "")).encode()
    head = [f"HTTP/1.1 {answer.get('status', 200)} As Told"]
    head += [f"content-type: {answer.get('type', 'application/json')}"]
    head += [f"{name}: {value}" for name, value in answer.get("headers", {}).items()]
    head += [f"content-length: {len(body)}" if keep else "connection: close"]
    return "\r\n".join([*head, "", ""]).encode() + body


main()
