"""What a running server says of itself: from a URL that somebody typed to a target for load."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from tuner import engines
from tuner.definitions.models import EngineDefinition
from tuner.definitions.nearest import did_you_mean
from tuner.engines.base import Engine, EngineFacts, LaunchSpec
from tuner.errors import HttpError, HttpProtocolError, HttpStatusError, HttpUnreachable, TunerError
from tuner.http.client import Http, needs_proxy, public_url, server_url
from tuner.load import Api, Target
from tuner.load.channels import open_channels
from tuner.load.dialects import DIALECTS, Reply, decode
from tuner.load.prompts import FIRST_ID, Prompt
from tuner.load.words import WORDS
from tuner.verbs.explain import EngineName

APIS: tuple[Api, ...] = get_args(Api)
_GENERATION_S = 120.0
_PROBE_TOKENS = 4
_KEY = re.compile(r"[\x21-\x7e]+")
_OF_AN_API = re.compile(r"/(?:v1/(?:chat/)?completions|v1/models|generate|health)/?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A server that generates: how to load it, and what it says of itself.

    `engine` is None where it did not say. `recorded` is False where requests go through TLS or a
    proxy, and so through a stock client whose own latency is in every number.
    """

    target: Target
    engine: EngineName | None
    facts: EngineFacts
    rehearsal: bool
    recorded: bool
    longest: int | None
    asked: Engine | None = field(repr=False)


def address(url: str) -> str:
    """The server's own address out of what was typed. Raises TunerError where there is none."""
    shown = public_url(url)
    if "://" not in url:
        hint = f"Give it as http://{url}." if url else "Give it as http://HOST:PORT."
        raise TunerError(f"{url or 'an empty text'} is not the address of a server", hint=hint)
    try:
        parsed = server_url(url)
    except HttpProtocolError as error:
        hint = error.hint or "Give it as http://HOST:PORT."
        raise TunerError(f"{shown} is not the address of a server", hint=hint) from error
    if parsed.userinfo:
        raise TunerError(
            f"{shown}: a user name or password in the address is not supported",
            hint="Put the server's API key into a variable: --api-key-env NAME.",
        )
    if parsed.query or parsed.fragment:
        raise TunerError(f"{shown}: found a query, expected an address alone", hint=_plain(shown))
    if _OF_AN_API.search(shown):
        raise TunerError(
            f"{shown}: found a path of an API, expected the server's address alone",
            hint=_plain(_OF_AN_API.sub("", shown)),
        )
    return shown.rstrip("/").removesuffix("/v1")


def _plain(shown: str) -> str:
    return f"Give it as {shown.rstrip('/')}."


def key_of(variable: str | None) -> str | None:
    """The API key that a variable of the environment holds; no message ever shows it.

    Raises TunerError where it is not set, or no header could carry it.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise TunerError(
            f"--api-key-env: the variable {variable} is not set",
            hint=f"Set it first: export {variable}=...",
        )
    if not _KEY.fullmatch(key):
        raise TunerError(
            f"--api-key-env: what {variable} holds is no key: it has spaces or other characters "
            "that no header can carry"
        )
    return key


async def find(
    url: str,
    *,
    api: Api | None = None,
    model: str | None = None,
    engine: EngineName | None = None,
    key: str | None = None,
) -> Found:
    """Ask a server what it is and serves, and have it generate once; what was given is not asked.

    Raises TunerError and HttpError, each saying what to give instead.
    """
    base = address(url)
    parsed = server_url(base)
    async with Http(base, key=key) as http:
        card = _card(await _models(http, needed=model is None and api != "generate"), model)
        name = engine or _engine(card)
        target = await _generating(base, api, str(card.get("id") or model or ""), name, key)
        asked = None if name is None else _engine_of(name, target.model)
        facts = await _facts(asked, http)
    longest = card.get("max_model_len")
    return Found(
        target=target,
        engine=name,
        facts=facts,
        rehearsal="(rehearsal)" in (facts.version or ""),
        recorded=parsed.scheme == "http" and not needs_proxy(parsed),
        longest=longest if isinstance(longest, int) else None,
        asked=asked,
    )


async def _models(http: Http, *, needed: bool) -> list[dict[str, Any]]:
    """The cards of /v1/models; none from a server that has no such list and needs none."""
    try:
        answer = await http.get_json("/v1/models")
    except HttpUnreachable as error:
        raise HttpUnreachable(
            error.message,
            hint=f"Is the server up, and reachable from here? curl {http.base_url}/v1/models",
        ) from error
    except HttpStatusError as error:
        if error.status in (401, 403):
            raise _no_key(http, error) from error
        if needed or error.status != 404:
            raise HttpStatusError(
                error.message,
                status=error.status,
                hint="Is it an LLM server? One without a list of models needs --model, or "
                "--api generate.",
            ) from error
        return []
    except HttpProtocolError as error:
        hint = "Is it an LLM server? Another program may listen there."
        raise HttpProtocolError(error.message, hint=hint) from error
    cards = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
        raise HttpProtocolError(
            f"GET {http.base_url}/v1/models: expected a list of models, found {str(answer)[:120]}",
            hint="Is it an LLM server? Another program may listen there.",
        )
    return cards


def _no_key(http: Http, error: HttpStatusError) -> TunerError:
    return TunerError(
        f"{http.base_url} asks for an API key, or refuses the one given (status {error.status})",
        hint="Put the key into a variable and name that: --api-key-env NAME.",
    )


def _card(cards: Sequence[dict[str, Any]], model: str | None) -> dict[str, Any]:
    """The model to ask for: the one named, else the first."""
    names = [str(card.get("id")) for card in cards]
    if model is None or not cards:
        return cards[0] if cards else {}
    if model not in names:
        raise TunerError(
            f"the server has no model {model!r}{did_you_mean(model, names)}",
            hint=f"It serves: {', '.join(names)}.",
        )
    return cards[names.index(model)]


def _engine(card: dict[str, Any]) -> EngineName | None:
    owner = str(card.get("owned_by", "")).lower()
    return cast(EngineName, owner) if owner in ("sglang", "vllm") else None


async def _generating(
    base: str, api: Api | None, model: str, engine: EngineName | None, key: str | None
) -> Target:
    """The first way of asking that brings tokens: the one named, else the engine's own first.

    Raises TunerError with what each of them answered.
    """
    own: Api = "completions" if engine in (None, "vllm") else "generate"
    ways = [api] if api else sorted(APIS, key=lambda way: way != own)
    said = []
    for way in ways:
        target = Target(base_url=base, api=way, model=model, key=key)
        reply = await _generate(target)
        if reply.error is None and reply.output_tokens:
            return target
        said.append(f"{DIALECTS[way].path}: {reply.error or 'no token came'}")
        if "status 401" in said[-1] or "status 403" in said[-1]:
            break
    raise TunerError(
        f"{base} generates nothing; {'; '.join(said)}",
        hint="Is its model loaded, and a model that generates? Its log says more: tuner explain.",
    )


async def _generate(target: Target) -> Reply:
    """A few tokens, asked for exactly as the load will ask."""
    dialect = DIALECTS[target.api]
    url = target.base_url + dialect.path
    (channel,) = open_channels(url, 1, stall_s=_GENERATION_S, key=target.key)
    try:
        ids = list(range(FIRST_ID, FIRST_ID + _PROBE_TOKENS))
        prompt: Prompt = ids if dialect.takes_ids else " ".join(WORDS[:_PROBE_TOKENS])
        return decode(
            await channel.post(dialect.body(target.model, prompt, _PROBE_TOKENS)), dialect
        )
    except HttpError as error:
        return Reply(error=error.message)
    finally:
        await channel.close()


def _engine_of(name: EngineName, model: str) -> Engine:
    """The engine as one that was launched by somebody else: only its questions are of use."""
    known = "sglang" if name == "rehearsal" else name
    spec = LaunchSpec(engine=EngineDefinition(name=known), model=model or "?", folder=Path("/"))
    return engines.create(spec)


async def _facts(engine: Engine | None, http: Http) -> EngineFacts:
    try:
        return EngineFacts() if engine is None else await engine.facts(http, "")
    except HttpError:
        return EngineFacts()
