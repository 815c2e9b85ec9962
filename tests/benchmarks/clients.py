"""Load-generating clients, each in the role of an instrument, in a process of its own.

`python clients.py NAME URL STREAMS REQUESTS TOKENS [RIVALS]` plays a closed loop against the truth
server, each stream REQUESTS requests of TOKENS tokens, and prints one JSON line: CPU seconds,
events, and by how much the latencies that the client *reports* are off, in milliseconds. The server
writes its clock into every event, so the truth of each latency is in the text that came.

CPU is that of all threads, from the first connection to the last number: connecting, building
requests, reading, decoding. Imports are left out, and so is what is done here with the numbers.

The rivals' own request functions are run as they are, from their packages; RIVALS is the folder of
an unpacked SGLang wheel. Nothing of theirs is kept here.
"""

import __future__

import argparse
import ast
import asyncio
import importlib.util
import json
import os
import resource
import sys
import time
import traceback
import types
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

DIGITS = 20
PROMPT_TOKENS = 16
TTFT_S, INTERVAL_S = 0.5, 0.02
"""How the truth server paces."""


@dataclass
class Run:
    """What to play, and what came of it: latencies as reported, against the truth."""

    url: str
    streams: int
    requests: int
    tokens: int
    rivals: str
    cpu_s: float = 0.0
    wall_s: float = 0.0
    seen: list[tuple[str, float, list[float], float | None]] = field(default_factory=list)
    events: int = 0
    failed: int = 0
    itl_errors_ms: list[float] = field(default_factory=list)
    ttft_errors_ms: list[float] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    itls_ms: list[float] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    read_late_ms: tuple[float, float] | None = None

    def saw(self, text: str, ttft_s: float, gaps_s: list[float], start_s: float | None) -> None:
        """One request as the client reports it, with its start where the client tells that."""
        self.seen.append((text, ttft_s, gaps_s, start_s))

    def saw_arrivals(self, text: str, sent_s: float, arrivals_s: list[float]) -> None:
        """One request by the times at which its events arrived."""
        gaps = [later - sooner for sooner, later in pairwise(arrivals_s)]
        self.saw(text, arrivals_s[0] - sent_s if arrivals_s else 0.0, gaps, sent_s)

    def judge(self) -> None:
        """Hold what was seen against the truth, which is in the texts."""
        for text, ttft_s, gaps_s, start_s in self.seen:
            times = [int(text[at : at + DIGITS]) / 1e9 for at in range(0, len(text), DIGITS)]
            written, asked = times[::2], times[1::2]
            self.events += len(written)
            if not asked or len(gaps_s) != len(written) - 1:
                self.failed += 1
                continue
            true_s = [later - sooner for sooner, later in pairwise(written)]
            self.itl_errors_ms += [
                abs(gap - true) * 1e3 for gap, true in zip(gaps_s, true_s, strict=True)
            ]
            self.itls_ms += [gap * 1e3 for gap in gaps_s]
            self.ttft_errors_ms.append(abs(ttft_s - (written[0] - asked[0])) * 1e3)
            if start_s is not None:
                reported = accumulate(gaps_s, initial=start_s + ttft_s)
                self.lags_ms += [
                    (at - true) * 1e3 for at, true in zip(reported, written, strict=True)
                ]

    async def closed_loop(self, one: Callable[[], Awaitable[None]]) -> None:
        """Each stream asks one request after another."""

        async def stream(number: int) -> None:
            await asyncio.sleep(0.02 * number / self.streams)
            for _ in range(self.requests):
                await one()

        await asyncio.gather(*map(stream, range(self.streams)))

    def clocked(self, play: Callable[[], Any]) -> None:
        """CPU (all threads) and wall time of what is played, imports left out."""
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        play()
        after = resource.getrusage(resource.RUSAGE_SELF)
        self.wall_s = time.perf_counter() - begun
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def body(self) -> dict[str, Any]:
        """What a script asks `/v1/completions`."""
        return {
            "model": "truth",
            "prompt": list(range(PROMPT_TOKENS)),
            "max_tokens": self.tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def ours(run: Run) -> None:
    """The product's own: its closed loop, its transport, its decoding; and what its validity rules
    say of this very run."""
    from tuner.definitions.slo import Slo
    from tuner.load import RungPlan, Target, play
    from tuner.load import run as on_loop
    from tuner.measuring.measurement import measure
    from tuner.measuring.validity import doubts

    length_s = run.requests * (TTFT_S + run.tokens * INTERVAL_S)
    plan = RungPlan(
        concurrency=run.streams,
        lengths=((PROMPT_TOKENS, run.tokens),),
        warmup_s=length_s / 4,
        window_s=length_s * 3 / 4,
        prompt_seed=1,
        order_seed=2,
        rung_index=0,
    )
    target = Target(base_url=run.url, api="completions", model="truth")
    kept: list[Any] = []
    run.clocked(lambda: kept.append(on_loop(play(target, plan))))
    (played,) = kept
    origin_s = played.real_s[0] - played.start_s
    for timing in played.timings:
        if timing.error is None and timing.text:
            arrivals_s = [origin_s + at for at, _ in timing.events]
            run.saw_arrivals(timing.text, origin_s + timing.sent_s, arrivals_s)
    rung = measure(
        played.timings,
        concurrency=run.streams,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=1,
        lags_s=played.lags_s,
    )
    slos = [Slo.parse("itl_ms p99 <= 1000")]  # its tail is what is looked at
    run.doubts = [str(doubt) for doubt in doubts(rung, played.observed(), slos) if doubt.voids]
    if rung.instrument_lag_ms is not None:
        run.read_late_ms = rung.instrument_lag_ms.p50, rung.instrument_lag_ms.p99


def httpx_lines(run: Run) -> None:
    """Stock httpx, its lines and json, as most scripts are written."""
    import httpx

    async def play() -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=None) as client:

            async def one() -> None:
                text, arrivals, sent_s = "", [], time.perf_counter()
                url = f"{run.url}/v1/completions"
                async with client.stream("POST", url, json=run.body()) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data: ") and line != "data: [DONE]":
                            text += json.loads(line[6:])["choices"][0]["text"]
                            arrivals.append(time.perf_counter())
                run.saw_arrivals(text, sent_s, arrivals)

            await run.closed_loop(one)

    run.clocked(lambda: asyncio.run(play()))


def aiohttp_lines(run: Run) -> None:
    """Stock aiohttp, its lines and json."""
    import aiohttp

    async def play() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def one() -> None:
                text, arrivals, sent_s = "", [], time.perf_counter()
                async with session.post(f"{run.url}/v1/completions", json=run.body()) as response:
                    async for line in response.content:
                        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                            text += json.loads(line[6:])["choices"][0]["text"]
                            arrivals.append(time.perf_counter())
                run.saw_arrivals(text, sent_s, arrivals)

            await run.closed_loop(one)

    run.clocked(lambda: asyncio.run(play()))


def vllm(run: Run) -> None:
    """The request function of `vllm bench serve`, from the installed vLLM."""
    import aiohttp

    (package,) = importlib.util.find_spec("vllm").submodule_search_locations  # type: ignore[union-attr, misc]
    module = _module(Path(package) / "benchmarks" / "lib" / "endpoint_request_func.py")

    async def play() -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        timeout = aiohttp.ClientTimeout(total=6 * 60 * 60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def one() -> None:
                asked = module.RequestFuncInput(
                    prompt=list(range(PROMPT_TOKENS)),
                    api_url=f"{run.url}/v1/completions",
                    prompt_len=PROMPT_TOKENS,
                    output_len=run.tokens,
                    model="truth",
                    ignore_eos=True,
                )
                got = await module.async_request_openai_completions(asked, session)
                run.saw(got.generated_text, got.ttft, list(got.itl), got.start_time)

            await run.closed_loop(one)

    run.clocked(lambda: asyncio.run(play()))


def sglang(run: Run) -> None:
    """The request function of SGLang's Python benchmark, cut out of its module, which imports what
    needs a GPU."""
    import aiohttp

    module = types.ModuleType("sglang_serving")
    sys.modules["sglang_serving"] = module  # dataclasses look their module up
    names = vars(module)
    names.update(
        aiohttp=aiohttp, argparse=argparse, json=json, os=os, sys=sys, time=time,
        traceback=traceback, dataclass=dataclass, field=field,
    )  # fmt: skip
    for file in ("utils.py", "serving.py"):
        _defined(Path(run.rivals) / "sglang" / "benchmark" / file, names)
    names["args"] = types.SimpleNamespace(
        disable_stream=False, disable_ignore_eos=False, return_logprob=False, header=None
    )

    async def one() -> None:
        asked = names["RequestFuncInput"](
            prompt="x" * PROMPT_TOKENS,
            api_url=f"{run.url}/v1/completions",
            prompt_len=PROMPT_TOKENS,
            output_len=run.tokens,
            model="truth",
            lora_name="",
            image_data=None,
            extra_request_body={},
        )
        got = await names["async_request_openai_completions"](request_func_input=asked)
        run.saw(got.generated_text, got.ttft, list(got.itl), got.start_time)

    run.clocked(lambda: asyncio.run(run.closed_loop(one)))


def _defined(path: Path, names: dict[str, Any]) -> None:
    """The functions, classes and constants of a module, without what it imports or runs;
    annotations stay texts, since they name what is not there."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes: list[ast.stmt] = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, kinds)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    ]
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(nodes, []), str(path), "exec", flags=flags), names)


def rust(run: Run) -> None:
    """SGLang's Rust client, the extension of its wheel, as it runs without a model."""
    (path,) = (Path(run.rivals) / "sglang" / "srt" / "rust_extensions").glob("_bench*.so")
    module = _module(path, "_bench")
    config = {
        "backend": "sglang-oai",
        "base_url": run.url,
        "model": "truth",
        "dataset_name": "random-ids",
        "tokenize_prompt": True,
        "vocab_size": 1000,
        "disable_retokenize": True,
        "num_prompts": run.streams * run.requests,
        "max_concurrency": run.streams,
        "random_input_len": PROMPT_TOKENS,
        "random_output_len": run.tokens,
        "random_range_ratio": 1.0,
        "request_rate": "inf",
        "warmup_requests": 0,
        "disable_tqdm": True,
        "output_details": True,
        "output_file": os.devnull,
    }
    answer: list[str] = []
    with _printing_nothing():
        run.clocked(lambda: answer.append(module.run_config(json.dumps(config))))
    result = json.loads(answer[0])
    told = zip(result["generated_texts"], result["ttfts"], result["itls"], strict=True)
    for text, ttft_s, gaps_s in told:
        run.saw(text, ttft_s, gaps_s, None)


def _module(path: Path, name: str = "rival") -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _printing_nothing:  # noqa: N801  (reads as what it does)
    """Sends what a library prints by itself to where nobody reads it."""

    def __enter__(self) -> None:
        self._kept = os.dup(1)
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 1)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 1)
        os.close(self._kept)


CLIENTS: dict[str, Callable[[Run], None]] = {
    "ours": ours,
    "httpx": httpx_lines,
    "aiohttp": aiohttp_lines,
    "vllm": vllm,
    "sglang": sglang,
    "sglang-rust": rust,
}


def percentile(values: list[float], share: float) -> float | None:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def main() -> None:
    """Run one client and print its figures."""
    name, url, streams, requests, tokens, *rest = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    run = Run(
        url=url,
        streams=int(streams),
        requests=int(requests),
        tokens=int(tokens),
        rivals=rest[0] if rest else "",
    )
    CLIENTS[name](run)
    run.judge()
    figures = {
        f"{what}_{label}": percentile(values, share)
        for what, values in {
            "lag_ms": run.lags_ms,
            "itl_error_ms": run.itl_errors_ms,
            "ttft_error_ms": run.ttft_errors_ms,
            "itl_ms": run.itls_ms,
        }.items()
        for label, share in {"p50": 0.5, "p99": 0.99}.items()
    }
    result = {
        "client": name,
        "streams": run.streams,
        "events": run.events,
        "failed": run.failed,
        "cpu_s": run.cpu_s,
        "wall_s": run.wall_s,
        "cpu_us_per_event": run.cpu_s / run.events * 1e6 if run.events else None,
        "doubts": run.doubts,
        "read_late_ms": run.read_late_ms,
        **figures,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
