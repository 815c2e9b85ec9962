"""How wrong are load generators, ours included? Side by side against a server that knows the truth.

    python -m tests.benchmarks.instrument [--rivals FOLDER] [--repeats 5] [--streams 1,10,64,...]

Clients take turns, in another order each time, on a core of their own beside the server's. FOLDER
holds what the rivals need and this project does not keep:

    python3 -m venv FOLDER/venv && FOLDER/venv/bin/pip install aiohttp httpx
    pip download sglang==0.5.23 --no-deps -d FOLDER && unzip -d FOLDER/sglang FOLDER/sglang-*.whl

vLLM's client comes with the engine of `studies/vllm-cpu`. A client that is not there is left out,
and said. All of it takes half an hour, of which stock httpx takes half.

Every stream gets its first token after 0.5 s and one each 20 ms, evenly paced. What is printed are
medians, with the worst of the repeats:

* CPU: us of all threads for an event, connecting, building requests and decoding included, imports
  not; and ours over theirs, the median of the pairs of one repeat
* lag: from an event's write to the time at which the client says that it came; - where it does not
  say when it began
* ITL error: of each gap between two events as the client reports it
* TTFT error: of the first token as the client reports it, against the time from the request's
  arrival at the server's socket to the first write; what a client does before it sends is in it
* below the table, for each repeat of ours: how late events were read (the kernel's stamps make that
  harmless), and what the validity rules say of that very run
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENGINE = ROOT / "studies" / "vllm-cpu" / "engine" / "bin" / "python"
PACE = "ttft_us=500000,interval_us=20000"
SIZES = ((1, 6, 16), (64, 2, 32), (256, 2, 256), (1536, 2, 40))
"""(up to so many streams, requests of each, tokens of a request): long enough that what a client
does once does not hide what it does for each event."""
SECONDS_LIMIT = 180
FIGURES = {"lag_ms": "lag", "itl_error_ms": "ITL error", "ttft_error_ms": "TTFT error"}


@contextmanager
def truth_server(folder: Path) -> Iterator[str]:
    """Builds it, runs it on core 0, and gives the URL at which it paces as this file says."""
    program = folder / "truth"
    subprocess.run(["cc", "-O2", "-o", program, HERE / "truth.c"], check=True)
    with subprocess.Popen(
        [program, "0"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    ) as server:
        try:
            port = server.stdout.readline().strip() if server.stdout else ""
            yield f"http://127.0.0.1:{port}/{PACE}"
        finally:
            server.kill()


def interpreters(rivals: Path | None) -> dict[str, Path]:
    """The clients that can run here, each with the Python that has what it needs."""
    found = {"ours": Path(sys.executable), "httpx": Path(sys.executable)}
    if ENGINE.exists():
        found["vllm"] = ENGINE
    if rivals is not None:
        python = rivals.resolve() / "venv" / "bin" / "python"
        names = {"aiohttp": python, "sglang": python, "sglang-rust": Path(sys.executable)}
        found |= {name: path for name, path in names.items() if path.exists()}
    return found


def measured(
    name: str, python: Path, url: str, streams: int, rivals: Path | None
) -> dict[str, Any] | None:
    """One run of one client; None, and a word, where it could not."""
    words = [streams, *size(streams), (rivals / "sglang").resolve() if rivals else ""]
    own = sorted(os.sched_getaffinity(0))[1:] or sorted(os.sched_getaffinity(0))
    try:
        done = subprocess.run(
            [python, HERE / "clients.py", name, url, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=SECONDS_LIMIT,
            env={**os.environ, "PYTHONPATH": str(ROOT) if name == "ours" else ""},
            preexec_fn=lambda: os.sched_setaffinity(0, own),
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{name} at {streams}: not done after {SECONDS_LIMIT} s", file=sys.stderr)
        return None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        print(f"{name} at {streams}: {last}", file=sys.stderr)
        return None
    answer: dict[str, Any] = json.loads(done.stdout)
    _say(f" {name}", end="")
    return answer


def size(streams: int) -> tuple[int, int]:
    """(requests of each stream, tokens of a request)."""
    return next((requests, tokens) for most, requests, tokens in SIZES if streams <= most)


def rows(runs: list[dict[str, dict[str, Any]]]) -> Iterator[str]:
    """A line a client: CPU, its ratio to ours of the same repeat, errors as median and worst."""
    for name in dict.fromkeys(name for run in runs for name in run):
        mine = [run[name] for run in runs if name in run]
        cpu = [run["cpu_us_per_event"] for run in mine]
        ratios = [
            run["ours"]["cpu_us_per_event"] / run[name]["cpu_us_per_event"]
            for run in runs
            if name in run and "ours" in run
        ]
        ratio = statistics.median(ratios) if ratios else float("nan")
        errors = "".join(_pair(mine, f"{what}_{tail}") for what in FIGURES for tail in _TAILS)
        yield f"{name:12s}{statistics.median(cpu):8.1f}{max(cpu):8.1f}{ratio:7.2f}{errors}"


_TAILS = ("p50", "p99")


def _pair(runs: list[dict[str, Any]], figure: str) -> str:
    values = [run[figure] for run in runs if run[figure] is not None]
    if not values:
        return f"{'-':>12s}{'-':>9s}"
    return f"{statistics.median(values):12.3f}{max(values):9.3f}"


def heads() -> Iterator[str]:
    """What the columns are."""
    names = "".join(f"{f'{name} {tail}':>21s}" for name in FIGURES.values() for tail in _TAILS)
    yield f"{'':12s}{'CPU us':>16s}{'ours':>7s}{names}"
    pairs = f"{'median':>12s}{'worst':>9s}" * len(FIGURES) * len(_TAILS)
    yield f"{'client':12s}{'median':>8s}{'worst':>8s}{'/it':>7s}{pairs}"


def verdicts(runs: list[dict[str, dict[str, Any]]]) -> Iterator[str]:
    """A line for each repeat of ours: its tails, and what our own rules say of it."""
    for number, run in enumerate((run["ours"] for run in runs if "ours" in run), 1):
        late = run["read_late_ms"] or (float("nan"), float("nan"))
        words = "; ".join(run["doubts"]) or "no rule speaks against it"
        yield (
            f"  ours {number}: ITL error p99 {run['itl_error_ms_p99']:.3f} ms, TTFT error p99 "
            f"{run['ttft_error_ms_p99']:.3f} ms, read late p50 {late[0]:.2f} p99 {late[1]:.2f} ms; "
            f"{'INVALID' if run['doubts'] else 'VALID'}: {words}"
        )


def main() -> None:
    """Print a table for each number of streams."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rivals", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--streams", default="1,10,64,256,1024,1536")
    parser.add_argument("--json", type=Path, help="where to keep every run")
    asked = parser.parse_args()
    clients = interpreters(asked.rivals)
    kept: list[dict[str, Any]] = []
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, truth_server(Path(folder)) as url:
        for streams in map(int, asked.streams.split(",")):
            runs = []
            for repeat in range(asked.repeats):
                minutes = (time.monotonic() - begun_s) / 60
                _say(f"{minutes:5.1f} min: {streams} streams, repeat {repeat + 1}:", end="")
                order = random.sample(list(clients), len(clients))
                found = {n: measured(n, clients[n], url, streams, asked.rivals) for n in order}
                runs.append({name: run for name in clients if (run := found[name]) is not None})
                _say("", end="\n")
            kept += [run for repeat in runs for run in repeat.values()]
            requests, tokens = size(streams)
            print(f"\n{streams} streams, each {requests} x {tokens} tokens; errors in ms")
            print(*heads(), *rows(runs), *verdicts(runs), sep="\n", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(kept, indent=1))


def _say(words: str, end: str) -> None:
    """How far it is, for who watches."""
    print(words, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
