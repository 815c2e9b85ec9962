"""One generation: what was asked, and what each of its events says. Pure."""

import json
import time
from dataclasses import dataclass
from typing import Any, Literal

from tuner.rehearsal import language

Style = Literal["generate", "completions", "chat"]
Fault = Literal["repeated", "drifting", "decoding", "empty", "short"]

_DEFAULT_TOKENS = 128


class BadRequest(ValueError):
    """The request is not one that the engine understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a generation, understood."""

    style: Style
    prompt: list[int]
    tokens: int
    stream: bool
    usage_always: bool = False
    usage_at_end: bool = False
    logprob_start: int | None = None
    top_logprobs: int = 0
    rid: str | None = None


def read_generate(body: bytes) -> Asked:
    """A request to /generate. Raises BadRequest."""
    payload = _payload(body)
    sampling = payload.get("sampling_params") or {}
    prompt = payload.get("input_ids")
    if prompt is None:
        prompt = language.tokens_of(str(payload.get("text") or ""))
    tokens = _prompt(prompt)
    return Asked(
        style="generate",
        prompt=tokens,
        tokens=_tokens(sampling.get("max_new_tokens", _DEFAULT_TOKENS)),
        stream=bool(payload.get("stream")),
        logprob_start=_logprob_start(payload, tokens),
        top_logprobs=int(payload.get("top_logprobs_num") or 0),
        rid=payload.get("rid"),
    )


def read_completions(body: bytes) -> Asked:
    """A request to /v1/completions. Raises BadRequest."""
    payload = _payload(body)
    prompt = payload.get("prompt")
    options = payload.get("stream_options") or {}
    return Asked(
        style="completions",
        prompt=_prompt(language.tokens_of(prompt) if isinstance(prompt, str) else prompt),
        tokens=_tokens(payload.get("max_tokens", 16)),
        stream=bool(payload.get("stream")),
        usage_always=bool(options.get("continuous_usage_stats")),
        usage_at_end=bool(options.get("include_usage")),
    )


def read_chat(body: bytes) -> Asked:
    """A request to /v1/chat/completions, its messages put into a template. Raises BadRequest."""
    payload = _payload(body)
    options = payload.get("stream_options") or {}
    tokens = payload.get("max_completion_tokens") or payload.get("max_tokens", _DEFAULT_TOKENS)
    return Asked(
        style="chat",
        prompt=language.tokens_of(_templated(payload.get("messages"))),
        tokens=_tokens(tokens),
        stream=bool(payload.get("stream")),
        usage_always=bool(options.get("continuous_usage_stats")),
        usage_at_end=bool(options.get("include_usage")),
    )


def _templated(messages: object) -> str:
    if not isinstance(messages, list) or not messages:
        raise BadRequest("expected messages, each with a role and a text")
    lines = []
    for message in messages:
        said = message.get("content") if isinstance(message, dict) else None
        if not isinstance(said, str):
            raise BadRequest(f"expected a message with a role and a text, found {message!r:.80}")
        lines.append(f"{message.get('role')}: {said}\n")
    return "".join([*lines, "assistant:"])


def read_text(body: bytes) -> list[int]:
    """The tokens of the text in a request to /tokenize. Raises BadRequest."""
    text = _payload(body).get("prompt")
    if not isinstance(text, str):
        raise BadRequest("expected a prompt: one text")
    return language.tokens_of(text)


def _payload(body: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(body)
    except ValueError as exc:
        raise BadRequest(f"the body is not JSON: {exc}") from exc
    if not isinstance(payload, dict):
        raise BadRequest("the body is not a JSON object")
    return payload


def _prompt(prompt: object) -> list[int]:
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], int):
        raise BadRequest("expected a prompt: one text, or one list of token ids")
    return prompt


def _logprob_start(payload: dict[str, Any], prompt: list[int]) -> int | None:
    start = payload.get("logprob_start_len", -1)
    if not payload.get("return_logprob"):
        return None
    if not isinstance(start, int) or not -1 <= start < len(prompt):
        raise BadRequest(f"logprob_start_len: found {start!r}, the prompt has {len(prompt)} tokens")
    return start if start >= 0 else len(prompt) - 1


def _tokens(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise BadRequest(f"expected a number of tokens to generate, found {count!r}")
    return count


class Generation:
    """Builds the events of one answer, whose output may be at fault.

    A stream is a stretch of a ring, since there are many of them; what is answered whole is said
    token by token, where `toss` decides between two that tie.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        number: int,
        model: str,
        fault: Fault | None,
        toss: language.Toss = lambda: False,
    ) -> None:
        self.asked = asked
        self.fault = fault
        self.tokens = max(1, asked.tokens // 2 if fault == "short" else asked.tokens)
        self.ring: language.Ring = "drifting" if fault == "drifting" else "own"
        decoding: language.Ring = "drifting" if fault == "decoding" else self.ring
        self._said: list[int] | None = None
        if not asked.stream:
            self._said = language.walk(asked.prompt, self.tokens, (self.ring, decoding), toss)
        self._decoding = decoding
        self._place = language.start(asked.prompt, decoding)
        self._model = model
        self._created_s = time.time()
        self._told = 0
        self.rid = asked.rid or f"{number:032x}"
        self._logprobs = self._logprob_fields() if asked.logprob_start is not None else ""

    def event(self, sent: int) -> str:
        """The JSON of the event after which `sent` tokens have been sent."""
        if self.asked.style == "generate":
            return self._generate_event(sent)
        return self._completions_event(sent)

    def whole(self) -> str:
        """The JSON of the answer that is no stream."""
        if self.asked.style == "generate":
            return self._generate_event(self.tokens)
        text, reason = self._text(0, self.tokens), self._stop_reason()
        return self._completion(text, reason, self.tokens, whole=True)

    def opening_event(self) -> str | None:
        """What comes before the first token: in a chat, who speaks; None after it."""
        if self.asked.style != "chat" or self._told:
            return None
        return self._completion("", None, 0 if self.asked.usage_always else None, opens=True)

    def usage_event(self) -> str | None:
        """The last event of a stream that was asked for usage."""
        if self.asked.style == "generate" or not self.asked.usage_at_end:
            return None
        head = json.dumps({**self._head(), "choices": []})
        return f'{head[:-1]},"usage":{self._usage(self.tokens)}}}'

    def output_ids(self) -> list[int]:
        """All tokens of the answer."""
        if self.fault == "repeated":
            return [language.REPEATED_ID] * self.tokens
        return self._said or language.ids(self._place, self.tokens, self._decoding)

    def _generate_event(self, sent: int) -> str:
        finished = sent >= self.tokens
        took = f',"e2e_latency":{time.time() - self._created_s:.6f}' if finished else ""
        return (
            f'{{"text":"{self._text(0, sent)}","output_ids":[{self._ids(sent)}],"meta_info":'
            f'{{"id":"{self.rid}","finish_reason":{self._finish(sent) if finished else "null"},'
            f'"prompt_tokens":{len(self.asked.prompt)},"weight_version":"default",'
            f'"total_retractions":0,{self._logprobs if finished else ""}'
            f'"completion_tokens":{sent},"cached_tokens":0{took}}}}}'
        )

    def _completions_event(self, sent: int) -> str:
        text, self._told = self._text(self._told, sent - self._told), sent
        reason = self._stop_reason() if sent >= self.tokens else None
        return self._completion(text, reason, sent if self.asked.usage_always else None)

    def _completion(
        self,
        text: str,
        reason: str | None,
        used: int | None,
        *,
        whole: bool = False,
        opens: bool = False,
    ) -> str:
        role = {"role": "assistant"} if whole or opens else {}
        message = {"message" if whole else "delta": {**role, "content": text}}
        said = message if self.asked.style == "chat" else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        head = json.dumps({**self._head(whole=whole), "choices": [choice]})
        return f'{head[:-1]},"usage":{"null" if used is None else self._usage(used)}}}'

    def _head(self, *, whole: bool = False) -> dict[str, object]:
        chat = "chat.completion" if whole else "chat.completion.chunk"
        return {
            "id": self.rid,
            "object": chat if self.asked.style == "chat" else "text_completion",
            "created": int(self._created_s),
            "model": self._model,
        }

    def _usage(self, sent: int) -> str:
        asked = len(self.asked.prompt)
        return (
            f'{{"prompt_tokens":{asked},"total_tokens":{asked + sent},"completion_tokens":{sent}}}'
        )

    def _stop_reason(self) -> str:
        return "stop" if self.fault == "short" else "length"

    def _finish(self, sent: int) -> str:
        if self.fault == "short":
            return '{"type":"stop","matched":2}'
        return f'{{"type":"length","length":{sent}}}'

    def _text(self, start: int, count: int) -> str:
        if self.fault == "repeated":
            return "!" * count
        if self.fault == "empty":
            return ""
        if self._said is not None:
            return language.words(self._said[start : start + count])
        return language.text((self._place + start) % language.SIZE, count, self._decoding)

    def _ids(self, count: int) -> str:
        if self.fault == "repeated":
            return ",".join([str(language.REPEATED_ID)] * count)
        if self._said is not None:
            return ",".join(map(str, self._said[:count]))
        return language.ids_json(self._place, count, self._decoding)

    def _logprob_fields(self) -> str:
        """`input_token_logprobs` from the asked start on, the first without a value since nothing
        stands before it; `output_token_logprobs`; and the likeliest tokens of each place."""
        start = self.asked.logprob_start or 0
        prompt, output = self.asked.prompt, self.output_ids()
        before = [None, *prompt[start:-1]]
        fields: dict[str, list[Any]] = {
            "input_token_logprobs": [
                [None if previous is None else self._logprob(previous, token), token, None]
                for previous, token in zip(before, prompt[start:], strict=True)
            ],
            "output_token_logprobs": [
                [self._logprob(previous, token), token, None]
                for previous, token in zip([prompt[-1], *output[:-1]], output, strict=True)
            ],
        }
        if self.asked.top_logprobs:
            fields["input_top_logprobs"] = [
                None if previous is None else self._top(previous) for previous in before
            ]
            fields["output_top_logprobs"] = [
                self._top(previous) for previous in [prompt[-1], *output[:-1]]
            ]
        return json.dumps(fields)[1:-1] + ","

    def _logprob(self, previous: int, token: int) -> float:
        return language.logprob(previous, token, self.ring)

    def _top(self, previous: int) -> list[list[Any]]:
        found = language.top(previous, self.asked.top_logprobs, self.ring)
        return [[value, token, None] for value, token in found]
