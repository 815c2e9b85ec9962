"""A server whose every answer is known: it paces tokens by the clock and logs what it wrote.

Run as `python -m tests.truth_server PORT_FILE`. The first segment of a request's path says how to
behave, as `name=value` pairs: `/ttft_ms=50,interval_ms=10,tokens=4/v1/completions`.

* ttft_ms, interval_ms: when the first event and each further one is written
* settles_s=S: it warms up: intervals are ten times as long at first, and as they should be S
  seconds after the first request of this path
* tokens: tokens per event
* usage=each|last|none: where completion tokens are counted
* split=N: every write goes out in pieces of N bytes
* style=sse|crlf|json: how the answer is written
* fault=503|400|silent|garbage-head: what is answered instead
* fault=reset|fin|stall|error|garbage|short, at=N: what goes wrong after N events
* lie=N: N tokens more are counted than were sent
* keep=0: Connection: close after each answer
* owner=NAME, models=list|none|html|text: what `v1/models` says
* key=TEXT: what must come as a bearer's token
* only=generate|completions: the other path is not there
* cap=N: no answer has more tokens, whatever was asked
* refuse=N: from the Nth request of this path on, 503

A chat begins with an event that says who speaks, and its prompt takes two tokens a word and five
more. `GET /log` answers all that was written since the last one.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httptools

DEFAULTS = {
    "ttft_ms": "20",
    "interval_ms": "10",
    "settles_s": "0",
    "tokens": "1",
    "usage": "each",
    "split": "0",
    "style": "sse",
    "fault": "none",
    "at": "3",
    "keep": "1",
    "lie": "0",
    "owner": "nobody",
    "models": "list",
    "key": "",
    "only": "",
    "cap": "1000000",
    "refuse": "0",
}
WORD_TOKENS = 2
TEMPLATE = 5
"""What a chat's prompt takes: so much for each word, and so much around them."""
ASKED: Counter[str] = Counter()
FIRST: dict[str, float] = {}
"""When each path was asked first."""
CARD = {"id": "m", "object": "model", "max_model_len": 4096}
LOG: list[dict[str, Any]] = []


class Truth(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.task = None

    def data_received(self, data):
        self.parser.feed_data(data)

    def connection_lost(self, exc):
        if self.task is not None:
            self.task.cancel()

    def on_message_begin(self):
        self.body = b""
        self.url = b""
        self.token = b""

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        if name.lower() == b"authorization":
            self.token = value

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        received = time.perf_counter()
        path = self.url.decode()
        if path == "/log":
            self.plain(200, json.dumps(LOG).encode())
            LOG.clear()
            return
        if path == "/health":
            self.plain(200, b"{}")
            return
        _, how, rest = path.split("/", 2)
        options = DEFAULTS | dict(pair.split("=", 1) for pair in how.split(","))
        if options["key"] and self.token != b"Bearer " + options["key"].encode():
            self.plain(401, b'{"error": "Unauthorized"}')
            return
        if rest == "v1/models":
            self.models(options)
            return
        if not rest.endswith(options["only"]):
            self.plain(404, b'{"detail": "Not Found"}')
            return
        if rest not in ("generate", "v1/completions", "v1/chat/completions"):
            self.plain(404, b'{"detail": "Not Found"}')
            return
        ASKED[path] += 1
        options["since"] = str(FIRST.setdefault(path, received))
        if 0 < int(options["refuse"]) <= ASKED[path]:
            options["fault"] = "503"
        self.task = asyncio.ensure_future(self.answer(options, rest, received))

    def models(self, options):
        if options["models"] == "list":
            card = CARD | {"owned_by": options["owner"]}
            self.plain(200, json.dumps({"object": "list", "data": [card]}).encode())
        elif options["models"] == "none":
            self.plain(404, b'{"detail": "Not Found"}')
        elif options["models"] == "html":
            self.plain(200, b"<html>nginx</html>", kind=b"text/html")
        else:
            self.plain(200, b'"hello"')

    def plain(self, status, body, kind=b"application/json", extra=b""):
        self.transport.write(
            b"HTTP/1.1 %d X\r\ncontent-type: %s\r\n%scontent-length: %d\r\n\r\n%s"
            % (status, kind, extra, len(body), body)
        )

    async def answer(self, options, path, received):
        asked = json.loads(self.body)
        options["path"] = path
        native = path == "generate"
        wanted = asked["sampling_params"]["max_new_tokens"] if native else asked["max_tokens"]
        wanted = min(wanted, int(options["cap"]))
        prompt = self.prompt(asked)
        fault, at = options["fault"], int(options["at"])
        if fault in ("503", "400"):
            self.plain(int(fault), b'{"error": "refused"}', extra=b"retry-after: 1\r\n")
            return
        if fault == "silent":
            return
        if fault == "garbage-head":
            self.transport.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            return
        if options["style"] != "json":
            self.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n",
                options,
            )
        entry = {"received": received, "input": len(prompt), "first": prompt[:8], "events": []}
        LOG.append(entry)
        if path.endswith("chat/completions") and options["style"] != "json":
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}}
            self.event({"choices": [role]}, options)
        sent = 0
        due = received + float(options["ttft_ms"]) / 1000
        while sent < wanted:
            entry["next"] = due
            entry["next_tokens"] = min(int(options["tokens"]), wanted - sent)
            await asyncio.sleep(due - time.perf_counter())
            if len(entry["events"]) == at and fault != "none":
                self.fail(fault, options)
                return
            sent += entry["next_tokens"]
            entry["events"].append((time.perf_counter(), entry["next_tokens"]))
            if options["style"] != "json":
                self.event(self.payload(native, options, prompt, sent, wanted), options)
            due += self.interval_s(options)
        entry["next"] = None
        self.end(native, options, prompt, sent)

    def interval_s(self, options):
        settles_s = float(options["settles_s"])
        passed_s = time.perf_counter() - float(options["since"])
        cold = max(0.0, 1 - passed_s / settles_s) if settles_s else 0.0
        return float(options["interval_ms"]) / 1000 * 10**cold

    def prompt(self, asked):
        if "messages" not in asked:
            return asked["input_ids"] if "input_ids" in asked else asked["prompt"]
        words = [word for one in asked["messages"] for word in one["content"].split()]
        return [word for word in words for _ in range(WORD_TOKENS)] + ["template"] * TEMPLATE

    def payload(self, native, options, prompt, sent, wanted):
        counted = sent + int(options["lie"])
        count = {"prompt_tokens": len(prompt), "completion_tokens": counted}
        last = sent == wanted
        if native:
            reason = {"type": "length", "length": wanted} if last else None
            return {"text": "ab " * sent, "meta_info": count | {"finish_reason": reason}}
        choice = {"index": 0, "text": "ab ", "finish_reason": "length" if last else None}
        if "chat" in options["path"]:
            choice["delta"] = choice["message"] = {"content": choice.pop("text")}
        usage = {"usage": count} if options["usage"] == "each" else {}
        return {"object": "text_completion", "choices": [choice]} | usage

    def end(self, native, options, prompt, sent):
        if options["style"] == "json":
            self.plain(200, json.dumps(self.payload(native, options, prompt, sent, sent)).encode())
        else:
            if not native and options["usage"] != "none":
                counted = sent + int(options["lie"])
                count = {"prompt_tokens": len(prompt), "completion_tokens": counted}
                self.event({"choices": [], "usage": count}, options)
            self.raw_event(b"[DONE]", options)
            self.write(b"0\r\n\r\n", options)
        if options["keep"] == "0":
            self.transport.close()

    def event(self, payload, options):
        self.raw_event(json.dumps(payload, separators=(",", ":")).encode(), options)

    def raw_event(self, data, options):
        end = b"\r\n\r\n" if options["style"] == "crlf" else b"\n\n"
        data = b"data: " + data + end
        self.write(b"%x\r\n%s\r\n" % (len(data), data), options)

    def write(self, data, options):
        piece = int(options["split"]) or len(data)
        for start in range(0, len(data), piece):
            self.transport.write(data[start : start + piece])

    def fail(self, fault, options):
        if fault == "reset":
            self.transport.abort()
        elif fault == "fin":
            self.transport.close()
        elif fault == "error":
            self.event({"error": {"message": "scheduler died", "code": 500}}, options)
            self.raw_event(b"[DONE]", options)
            self.write(b"0\r\n\r\n", options)
        elif fault == "garbage":
            self.raw_event(b'{"choices": [', options)
            self.write(b"0\r\n\r\n", options)
        elif fault == "short":
            self.write(b"0\r\n\r\n", options)


async def main(port_file):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Truth, "127.0.0.1", 0, backlog=2048)
    await asyncio.to_thread(Path(port_file).write_text, str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
