"""A server that takes SGLang's command line and is dishonest in one way: `DISHONEST` says how.

Ten milliseconds a token, twenty where it is honest, whoever asks: so each of its lies pays.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from tuner.rehearsal import language

HOW = os.environ.get("DISHONEST", "")
TOKEN_S = 0.01 if HOW else 0.02
ROOM = 4
under_way = 0
asked = 0


def port() -> int:
    return int(sys.argv[sys.argv.index("--port") + 1])


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            length = next(
                (int(x.split(":")[1]) for x in lines if x.lower().startswith("content-l")), 0
            )
            body = await reader.readexactly(length)
            await answer(writer, lines[0].split()[1], body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def respond(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    content = json.dumps(value).encode()
    writer.write(
        b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (status, len(content), content)
    )


async def answer(writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
    global under_way, asked
    if path == "/health":
        return respond(writer, 200, {})
    if path != "/generate":
        return respond(writer, 404, {})
    request = json.loads(body)
    asked += 1
    if HOW == "refuses load" and under_way >= ROOM:
        return respond(writer, 503, {"error": {"message": "the queue is full"}})
    under_way += 1
    try:
        if not request.get("stream"):
            tokens = request["sampling_params"]["max_new_tokens"]
            return respond(writer, 200, event(request, tokens, tokens))
        await stream(writer, request)
    finally:
        under_way -= 1


async def stream(writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    number = asked
    async for text in events(request, number):
        if text == "cut":
            writer.transport.abort()
            return
        chunk = f"data: {text}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def events(request: dict[str, Any], number: int) -> AsyncIterator[str]:
    tokens = request["sampling_params"]["max_new_tokens"]
    last = tokens // 2 if HOW == "answers short" else tokens
    for sent in range(1, last + 1):
        await asyncio.sleep(TOKEN_S)
        if sent == 4 and number % 4 == 0 and HOW == "errs inside streams":
            yield json.dumps({"error": {"message": "an exception inside the engine"}})
            return
        if sent == 4 and number % 4 == 0 and HOW == "cuts streams":
            yield "cut"
            return
        yield json.dumps(event(request, sent, last))


def event(request: dict[str, Any], sent: int, last: int) -> dict[str, Any]:
    place = language.start(request["input_ids"])
    text = {"answers !!!!": "!" * sent, "answers nothing": ""}.get(HOW, language.text(place, sent))
    return {
        "text": text,
        "output_ids": language.ids(place, sent),
        "meta_info": {
            "prompt_tokens": len(request["input_ids"]),
            "completion_tokens": sent,
            "finish_reason": {"type": "length", "length": sent} if sent >= last else None,
        },
    }


async def main() -> None:
    server = await asyncio.start_server(handle, "127.0.0.1", port())
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
