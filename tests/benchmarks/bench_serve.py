"""`tuner measure` beside `vllm bench serve`, on one running vLLM, in turn.

    python -m tests.benchmarks.bench_serve http://127.0.0.1:8000 \\
        --python studies/vllm-cpu/engine/bin/python --model studies/vllm-cpu/models/dense

Both ask for the same lengths at the same concurrency, whichever was first is second in the next
repeat. Their number of requests fills about the window that ours measures. Their client is what its
own `vllm bench serve` calls, in the engine's environment, with a seed of its own in each repeat:
with one seed the server would know all prompts from the second repeat on.

Left to itself their client sends its first requests at one moment, and since all are equally long
they stay in step: prompts of a wave wait for each other. Ours spreads its streams. So theirs is
given a rate as well, three times what the server does, which spreads its first requests and bounds
nothing; `--in-step` leaves that out. Beside the throughput that it prints stands the one of its
steady part, from its own stamps: from when all streams were under way until the last request was
sent.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

_THEIRS = """\
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
_LIMIT_S = 600
_LEAST_WAVES = 3
_SPREAD = 3.0
"""Times the server's own rate: above all that a machine that is less busy later may reach, since it
must bound nothing; the first requests are then spread over a third of an answer's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is measured, and with whose client beside ours; `seconds` is about how long each."""

    url: str
    python: Path
    model: str
    input_tokens: int = 64
    output_tokens: int = 64
    seconds: float = 10.0
    in_step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One client's numbers of one repeat."""

    output_tok_s: float
    steady_tok_s: float
    ttft_p50_ms: float
    requests: int
    reasons: Sequence[str] = ()


@dataclass(slots=True)
class Compared:
    """All repeats at one concurrency."""

    concurrency: int
    ours: list[Measured] = field(default_factory=list)
    theirs: list[Measured] = field(default_factory=list)

    def both(self, name: str) -> tuple[list[float], list[float]]:
        """A number of each repeat, ours and theirs."""
        return [getattr(m, name) for m in self.ours], [getattr(m, name) for m in self.theirs]

    def ratio(self, name: str) -> float:
        """Ours over theirs: the median of the repeats' ratios, each of one pair."""
        return median(a / b for a, b in zip(*self.both(name), strict=True))

    def agrees(self, name: str, *, slack: float = 0.0, more: float = 0.0) -> bool:
        """Whether the repeats of the one and of the other overlap, each drawn out by a share and by
        an amount."""
        ours, theirs = self.both(name)
        return min(ours) <= max(theirs) * (1 + slack) + more and (
            min(theirs) <= max(ours) * (1 + slack) + more
        )


def compare(setup: Setup, concurrency: Sequence[int], repeats: int) -> list[Compared]:
    """Measure in turn. Raises CalledProcessError where their client fails."""
    found = [Compared(level) for level in concurrency]
    for each in found:
        pace = _ours(setup, each.concurrency)  # a rehearsal, which also warms the server up
        requests = _requests(setup, each.concurrency, pace)
        for repeat in range(repeats):
            for mine in (True, False) if repeat % 2 else (False, True):
                if mine:
                    each.ours.append(_ours(setup, each.concurrency))
                else:
                    rate = None if setup.in_step else _SPREAD * pace.requests / setup.seconds
                    each.theirs.append(_theirs(setup, each.concurrency, requests, rate, repeat))
            print(*_lines(each, repeat), sep="\n", file=sys.stderr, flush=True)
    return found


def _requests(setup: Setup, concurrency: int, pace: Measured) -> int:
    wanted = pace.output_tok_s * setup.seconds / setup.output_tokens
    return concurrency * max(_LEAST_WAVES, math.ceil(wanted / concurrency))


def _ours(setup: Setup, concurrency: int) -> Measured:
    lengths = ("--input-tokens", setup.input_tokens, "--output-tokens", setup.output_tokens)
    load = ("--concurrency", concurrency, *lengths, "--window", setup.seconds)
    words = [sys.executable, "-m", "tuner", "measure", setup.url, "--json", *map(str, load)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if not done.stdout:
        raise subprocess.CalledProcessError(done.returncode, words, stderr=done.stderr)
    document = json.loads(done.stdout)
    (rung,) = (rung["measurement"] for rung in document["rungs"])
    return Measured(
        output_tok_s=rung["output_tok_s"],
        steady_tok_s=rung["output_tok_s"],
        ttft_p50_ms=rung["ttft_ms"]["p50"],
        requests=rung["requests_completed"],
        reasons=document["reasons"],
    )


def _theirs(
    setup: Setup, concurrency: int, requests: int, rate: float | None, seed: int
) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "backend": "openai",
            "base-url": setup.url,
            "endpoint": "/v1/completions",
            "model": setup.model,
            "dataset-name": "random",
            "random-input-len": setup.input_tokens,
            "random-output-len": setup.output_tokens,
            "max-concurrency": concurrency,
            "num-prompts": requests,
            "temperature": 0,
            "seed": 1000 + seed,
            "result-dir": folder,
            "result-filename": "result.json",
        }
        words = [str(setup.python), "-c", _THEIRS, "--ignore-eos", "--save-result"]
        words += ["--save-detailed"]
        if rate is not None:
            options |= {"request-rate": rate, "burstiness": 1000}  # evenly, more or less
        words += ["--disable-tqdm", *(f"--{name}={value}" for name, value in options.items())]
        subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
        result = json.loads((Path(folder) / "result.json").read_text())
    return Measured(
        output_tok_s=result["output_throughput"],
        steady_tok_s=steady_tok_s(result, concurrency),
        ttft_p50_ms=result["median_ttft_ms"],
        requests=result["completed"],
    )


def steady_tok_s(result: dict[str, Any], concurrency: int) -> float:
    """Tokens a second while all streams were under way, by vLLM's own stamps.

    An event that came by itself carries the mean number of tokens of its answer's events.
    """
    starts = sorted(result["start_times"])
    since_s, until_s = starts[concurrency - 1], starts[-1]
    tokens = 0.0
    for start_s, ttft_s, gaps_s, length in zip(
        *(result[name] for name in ("start_times", "ttfts", "itls", "output_lens")), strict=True
    ):
        arrivals = list(accumulate(gaps_s, initial=start_s + ttft_s))
        inside = sum(since_s < at_s <= until_s for at_s in arrivals)
        tokens += length * inside / len(arrivals)
    return float(tokens / (until_s - since_s))


def _lines(each: Compared, repeat: int) -> list[str]:
    pairs = (("tuner", each.ours[-1]), ("vllm bench", each.theirs[-1]))
    return [
        f"at {each.concurrency}, {repeat + 1}: {name} {m.output_tok_s:.1f} tok/s "
        f"({m.steady_tok_s:.1f} steady), "
        f"TTFT p50 {m.ttft_p50_ms:.1f} ms, {m.requests} requests {'; '.join(m.reasons)}"
        for name, m in pairs
    ]


def table(found: Sequence[Compared]) -> str:
    """Medians with the least and the most of the repeats, and the paired ratio."""
    lines = [
        "| concurrency | | tuner measure | vllm bench serve | ratio | repeats overlap |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        for name, said in _SHOWN:
            cells = [_spread(values) for values in each.both(name)]
            overlap = "yes" if each.agrees(name) else "no"
            cells += [f"{each.ratio(name):.3f}", overlap]
            lines.append(f"| {each.concurrency} | {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


_SHOWN = (
    ("output_tok_s", "output tok/s"),
    ("steady_tok_s", "output tok/s, their steady part"),
    ("ttft_p50_ms", "TTFT p50 ms"),
)


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--python", type=Path, required=True, help="the engine's interpreter")
    parser.add_argument("--model", required=True, help="as the server calls it, with a tokenizer")
    parser.add_argument("--concurrency", default="1,4,16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--input-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--in-step", action="store_true")
    given = parser.parse_args()
    setup = Setup(
        url=given.url,
        python=given.python,
        model=given.model,
        input_tokens=given.input_tokens,
        output_tokens=given.output_tokens,
        seconds=given.seconds,
        in_step=given.in_step,
    )
    levels = [int(level) for level in given.concurrency.split(",")]
    try:
        print(table(compare(setup, levels, given.repeats)))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}\n{error.stderr}")


if __name__ == "__main__":
    main()
