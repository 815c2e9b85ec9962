"""OpenAI's `/v1/chat/completions`: text in, and text, thoughts or calls of tools out."""

from collections.abc import Sequence

import msgspec

from tuner.errors import HttpProtocolError
from tuner.load.events import (
    NO_USAGE,
    Event,
    Heard,
    Said,
    Usage,
    all_said,
    ended_by,
    short_bytes,
    understood,
)
from tuner.load.prompts import Prompt


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
    """A whole message, or what of it is new; thoughts stand under either name."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None

    def text(self) -> str:
        """All that is said, thoughts first."""
        thought = self.reasoning_content or self.reasoning or ""
        return f"{thought}{self.content or ''}{''.join(map(_called, self.tool_calls or ()))}"


def _called(call: _Call) -> str:
    function = call.function
    return "" if function is None else f"{function.name or ''}{function.arguments or ''}"


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Chat(Event):
    choices: list[_Choice] | None = None
    usage: Usage | None = None


_NO_CHOICE, _NO_MESSAGE = _Choice(), _Message()


class Chat:
    """OpenAI's `/v1/chat/completions`; no token ids can be asked, so a prompt is one message.

    What thinks or calls tools speaks like any text. An event that only names who speaks does not.
    """

    path = "/v1/chat/completions"
    takes_ids = False
    _decoder = msgspec.json.Decoder(_Chat)

    def body(self, model: str, prompt: Prompt, output_tokens: int) -> bytes:
        """The request for exactly `output_tokens` greedy tokens, streamed."""
        return msgspec.json.encode(
            {
                "model": model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": output_tokens,
                "min_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
        )

    def hear(self, data: bytes) -> Heard:
        """What an event says. Raises HttpProtocolError."""
        event = understood(self._decoder, data)
        if event.error is not None or event.object == "error":
            return Heard(error=event.failure())
        if event.choices is None:
            raise HttpProtocolError(f"an event without choices: {short_bytes(data)}")
        usage = event.usage or NO_USAGE
        choice = event.choices[0] if event.choices else _NO_CHOICE
        message = choice.delta or choice.message or _NO_MESSAGE
        text = message.text()
        return Heard(
            speaks=bool(event.choices) and (bool(text) or message.role is None),
            text=text,
            counted=usage.completion_tokens,
            input_tokens=usage.prompt_tokens,
            finished=choice.finish_reason is not None,
            error=ended_by(choice.finish_reason),
        )

    def said(self, data: Sequence[bytes]) -> Sequence[Said | None]:
        """What events say that are content and its tokens; None for the others."""
        return all_said(self._decoder, data, _said)


def _said(event: _Chat) -> Said | None:
    choices, usage = event.choices, event.usage
    if not choices or usage is None or event.error is not None or event.object == "error":
        return None
    choice, counted = choices[0], usage.completion_tokens
    if choice.delta is None or choice.finish_reason is not None or counted is None:
        return None
    text = choice.delta.text()
    return (text, counted, usage.prompt_tokens) if text else None
