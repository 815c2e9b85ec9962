"""The engine while it serves: its endpoints, its streams, and what befalls it."""

import asyncio
import time
from collections.abc import Callable, Mapping

from tuner.definitions.models import Value
from tuner.definitions.surface import Crash
from tuner.flags.sglang import FLAGS
from tuner.flags.sglang_table import VERSION
from tuner.rehearsal import death, journal
from tuner.rehearsal.behaviour import Behaviour
from tuner.rehearsal.generation import (
    Asked,
    BadRequest,
    Fault,
    Generation,
    read_chat,
    read_completions,
    read_generate,
    read_text,
)
from tuner.rehearsal.pacing import Pacer, Stream
from tuner.rehearsal.wire import Connection, Request

_HEALTH_PATIENCE_S = 20.0
_LOG_EVERY_TOKENS = 40.0

Route = Callable[["App", Connection, Request], None]


class App:
    """Answers requests on the event loop that is running when it is made."""

    def __init__(self, behaviour: Behaviour, arguments: Mapping[str, Value]) -> None:
        self.ready = False
        self._loop = asyncio.get_running_loop()
        self._behaviour = behaviour
        self._surface = behaviour.surface
        self._arguments = arguments
        self._model = str(arguments.get("served-model-name") or arguments["model-path"])
        now_s = self._loop.time()
        self._pacer = Pacer(behaviour=behaviour, now_s=now_s, wall_offset_s=time.time() - now_s)
        self._timer: asyncio.TimerHandle | None = None
        self._answered = 0
        self._begun = 0
        self._next_log = _LOG_EVERY_TOKENS
        self._crashes = [
            crash for crash in behaviour.matching(self._surface.crashes) if crash.at is None
        ]
        self._hang_after = min(
            (
                hang.requests
                for hang in behaviour.matching(self._surface.hangs)
                if hang.requests is not None
            ),
            default=None,
        )
        self._stall_where_due()

    def connection(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self._handle, self._lost)

    # Routes.

    def _handle(self, connection: Connection, request: Request) -> None:
        route = _ROUTES.get(request.path)
        if route is None:
            connection.respond_json(404, {"detail": "Not Found"})
            return
        try:
            route(self, connection, request)
        except BadRequest as exc:
            connection.respond_json(400, {"error": {"message": str(exc)}})

    def _health(self, connection: Connection, request: Request) -> None:
        connection.respond(200 if self.ready else 503, b"", "text/plain")

    def _health_generate(self, connection: Connection, request: Request) -> None:
        if self.ready and self._pacer.stalled:
            wait_s = _HEALTH_PATIENCE_S / self._surface.time_scale
            self._loop.call_later(wait_s, self._unhealthy, connection)
        else:
            self._health(connection, request)

    def _unhealthy(self, connection: Connection) -> None:
        journal.say(
            "Health check failed. Server couldn't get a response from detokenizer for last"
            f" {_HEALTH_PATIENCE_S:.0f} seconds."
        )
        connection.respond(503, b"", "text/plain")

    def _server_info(self, connection: Connection, request: Request) -> None:
        memory = self._surface.memory
        state = {
            "last_gen_throughput": round(self._pacer.throughput, 2),
            "memory_usage": {
                "weight": self._behaviour.weight_gb(),
                "token_capacity": memory.kv_tokens,
            },
        }
        connection.respond_json(
            200,
            {
                **{FLAGS[name].dest: value for name, value in self._arguments.items()},
                "max_total_num_tokens": memory.kv_tokens,
                "internal_states": [state],
                "version": f"{VERSION} (rehearsal)",
            },
        )

    def _model_info(self, connection: Connection, request: Request) -> None:
        connection.respond_json(
            200, {"model_path": self._arguments["model-path"], "is_generation": True}
        )

    def _models(self, connection: Connection, request: Request) -> None:
        card = {"id": self._model, "object": "model", "owned_by": "sglang"}
        connection.respond_json(200, {"object": "list", "data": [card]})

    def _flush_cache(self, connection: Connection, request: Request) -> None:
        busy = self._pacer.running + self._pacer.queued
        text = "Requests are running." if busy else "Cache flushed."
        connection.respond(400 if busy else 200, text.encode(), "text/plain")

    def _metrics(self, connection: Connection, request: Request) -> None:
        if not self._arguments.get("enable-metrics"):
            connection.respond_json(404, {"detail": "Not Found"})
            return
        values = {
            "num_running_reqs": self._pacer.running,
            "num_queue_reqs": self._pacer.queued,
            "gen_throughput": round(self._pacer.throughput, 2),
        }
        lines = (
            f"# TYPE sglang:{name} gauge\n"
            f'sglang:{name}{{engine_type="unified",model_name="{self._model}"}} {float(value)}\n'
            for name, value in values.items()
        )
        connection.respond(200, "".join(lines).encode(), "text/plain; version=0.0.4")

    def _generate(self, connection: Connection, request: Request) -> None:
        self._begin(connection, read_generate(request.body))

    def _completions(self, connection: Connection, request: Request) -> None:
        self._begin(connection, read_completions(request.body))

    def _tokenize(self, connection: Connection, request: Request) -> None:
        tokens = read_text(request.body)
        connection.respond_json(200, {"tokens": tokens, "count": len(tokens)})

    def _chat(self, connection: Connection, request: Request) -> None:
        self._begin(connection, read_chat(request.body))

    # Streams.

    def _begin(self, connection: Connection, asked: Asked) -> None:
        now_s = self._loop.time()
        if self._refuses():
            connection.respond_json(503, {"error": {"message": "The request queue is full."}})
            return
        self._begun += 1
        generation = Generation(
            asked,
            number=self._begun,
            model=self._model,
            fault=self._fault(),
            toss=self._behaviour.toss,
        )
        stream = Stream(owner=(connection, generation), tokens=generation.tokens)
        connection.work = stream
        if asked.stream:
            connection.begin_stream()
        self._pacer.submit(now_s, stream)
        if self._pacer.running == 1:
            self._log_prefill(generation)
        self._arm()
        for crash in self._crashes:
            if crash.running is not None and self._pacer.running >= crash.running:
                self._doom(crash)

    def _refuses(self) -> bool:
        pacer = self._pacer
        limit = self._arguments.get("max-queued-requests")
        if isinstance(limit, int) and pacer.running >= self._behaviour.pool:
            return pacer.queued >= limit
        refusals = self._behaviour.matching(self._surface.refusals)
        return any(pacer.running + pacer.queued >= refusal.above for refusal in refusals)

    def _fault(self) -> Fault | None:
        wrong = self._behaviour.matching(self._surface.wrong_output)
        return next((entry.kind for entry in wrong if self._behaviour.hit(entry.share)), None)

    def _lost(self, connection: Connection) -> None:
        if isinstance(connection.work, Stream):
            self._pacer.cancel(self._loop.time(), connection.work)
            self._arm()

    def _tick(self) -> None:
        self._timer = None
        for stream in self._pacer.advance(self._loop.time()):
            self._send(stream)
        if self._pacer.progress >= self._next_log:
            self._log_batch()
        self._arm()

    def _send(self, stream: Stream) -> None:
        connection, generation = stream.owner
        if generation.asked.stream:
            opening = generation.opening_event()
            if opening is not None:
                connection.send(opening)
            usage = generation.usage_event() if stream.finished else None
            connection.send(generation.event(stream.sent), last=stream.finished and usage is None)
            if usage is not None:
                connection.send(usage, last=True)
        elif stream.finished:
            connection.respond(200, generation.whole().encode())
        if stream.finished:
            self._count_answer()

    def _count_answer(self) -> None:
        self._answered += 1
        self._stall_where_due()
        for crash in self._crashes:
            if crash.requests is not None and self._answered >= crash.requests:
                self._doom(crash)

    def _stall_where_due(self) -> None:
        if self._hang_after is not None and self._answered >= self._hang_after:
            self._pacer.stalled = True

    def _doom(self, crash: Crash) -> None:
        """Die of it once, `after_s` from now."""
        self._crashes.remove(crash)
        self._loop.call_later(crash.after_s / self._surface.time_scale, self._fall, crash)

    def _fall(self, crash: Crash) -> None:
        self._pacer.stalled = True
        death.last_words(crash)
        if crash.exit != "zombie":
            self._loop.call_later(crash.linger_s / self._surface.time_scale, death.end, crash)

    def _log_prefill(self, generation: Generation) -> None:
        """Of the batches that a real engine logs as they come, the one that ends an idle time."""
        journal.say(
            f"Prefill batch, #new-seq: 1, #new-token: {len(generation.asked.prompt)}, "
            "#cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0",
            rank=0,
        )

    def _log_batch(self) -> None:
        pacer = self._pacer
        self._next_log = pacer.progress + _LOG_EVERY_TOKENS
        journal.say(
            f"Decode batch, #running-req: {pacer.running}, token usage: 0.10, cuda graph: "
            f"{not self._arguments['disable-cuda-graph']}, gen throughput (token/s): "
            f"{pacer.throughput:.2f}, #queue-req: {pacer.queued}",
            rank=0,
        )

    def _arm(self) -> None:
        due_s = self._pacer.next_s()
        if self._timer is not None:
            if due_s is not None and self._timer.when() <= due_s:
                return  # it wakes early enough, and then looks again
            self._timer.cancel()
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._tick)


_ROUTES: Mapping[str, Route] = {
    "/health": App._health,
    "/health_generate": App._health_generate,
    "/get_server_info": App._server_info,
    "/server_info": App._server_info,
    "/get_model_info": App._model_info,
    "/model_info": App._model_info,
    "/v1/models": App._models,
    "/flush_cache": App._flush_cache,
    "/metrics": App._metrics,
    "/generate": App._generate,
    "/v1/completions": App._completions,
    "/v1/chat/completions": App._chat,
    "/tokenize": App._tokenize,
}
