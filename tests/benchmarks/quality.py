"""How often the comparison of outputs is wrong on a real engine: vLLM on the CPU.

    python -m tests.benchmarks.quality [--launches 12]

Honest launches at other batch sizes, thread counts, block sizes and without a prefix cache, then
launches whose output is another: other dtypes, and models with noise in one layer. All are scored
by launches of the baseline, as a night does. Of the honest ones none may differ. About half a
minute a launch, one at a time; `bash studies/vllm-cpu/setup.sh` makes engine and model.
"""

import argparse
import asyncio
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.rehearsed import free_port
from tests.samples import record
from tests.spoken import order_of, spoken
from tuner import engines
from tuner.definitions.models import EngineDefinition
from tuner.engines.base import LaunchSpec
from tuner.hosts.server import Server
from tuner.http.client import Http
from tuner.records import TrialKind, TrialRecord
from tuner.verdicts.outputs import Outputs

ENGINE = ROOT / "studies" / "vllm-cpu" / "engine" / "bin" / "python"
MODEL = ROOT / "studies" / "vllm-cpu" / "models" / "dense"
FLAGS: dict[str, Any] = {"max-model-len": 1024, "enforce-eager": True, "served-model-name": "m"}
LADDER = (
    '{"ladder": [{"concurrency": 1}, {"concurrency": 4}, {"concurrency": 16}],'
    ' "input_tokens": 32, "output_tokens": 48, "warmup_s": 1, "window_s": 2}'
)
HONEST: list[dict[str, Any]] = [
    {"flags": {"max-num-seqs": 2}},
    {"flags": {"max-num-seqs": 64}},
    {"env": {"OMP_NUM_THREADS": "1"}},
    {"flags": {"max-num-batched-tokens": 1024}},
    {"flags": {"block-size": 64}},
    {"flags": {"no-enable-prefix-caching": True}},
]
OTHER: dict[str, dict[str, Any]] = {
    "float32": {"flags": {"dtype": "float32"}},
    "float16": {"flags": {"dtype": "float16"}},
    "noise 3 % in a layer": {"noise": 0.03},
    "noise 10 % in a layer": {"noise": 0.10},
    "noise 30 % in a layer": {"noise": 0.30},
}
PATIENCE_S = 600.0


@dataclass
class Study:
    """Launches of one study, one after the other."""

    folder: Path
    records: list[TrialRecord] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def launch(self, name: str, **changes: Any) -> None:
        """One launch, scored by the baseline later; one of the baseline scores."""
        spec = self._spec(**changes)
        engine, port = engines.create(spec), free_port()
        command = engine.command(host="127.0.0.1", port=port, extra_ports=(free_port(),))
        begun, kind = time.perf_counter(), _kind(name)
        folder = self.folder / f"{len(self.records):04d}"
        folder.mkdir()
        with Server.start(command, folder=folder, port=port, cores=(), tag="quality"):
            asyncio.run(_ready(engine, port))
            course = asyncio.run(spoken(order_of(spec, self.records, kind, LADDER), port))
        self.names.append(name)
        self.records.append(
            record(
                len(self.records),
                kind,
                key=name,
                continuations=course.continuations,
                rescored=course.rescored,
                not_compared=course.not_compared,
            )
        )
        print(f"{name}: {time.perf_counter() - begun:.0f} s {course.not_compared}", flush=True)

    def _spec(
        self,
        flags: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        noise: float = 0.0,
    ) -> LaunchSpec:
        return LaunchSpec(
            engine=EngineDefinition(name="vllm", python=str(ENGINE)),
            model=str(self._perturbed(noise) if noise else MODEL),
            folder=self.folder,
            flags={**FLAGS, **(flags or {})},
            env={"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", **(env or {})},
        )

    def _perturbed(self, noise: float) -> Path:
        copy = self.folder / f"noise-{noise}"
        script = Path(__file__).with_name("perturb_model.py")
        subprocess.run([ENGINE, script, MODEL, copy, "2", str(noise)], check=True)
        return copy


def _kind(name: str) -> TrialKind:
    return "baseline" if name == "baseline" else "search"


async def _ready(engine: Any, port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    async with Http(f"http://127.0.0.1:{port}") as http:
        while not await engine.ready(http):
            if time.monotonic() > deadline:
                raise SystemExit("the server is not ready")
            await asyncio.sleep(0.5)


def main() -> None:
    """Launch, score, and print a line for each launch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", type=int, default=12, help="honest ones")
    launches = parser.parse_args().launches
    with tempfile.TemporaryDirectory() as name:
        study = Study(Path(name))
        study.launch("baseline")
        study.launch("baseline")
        for number in range(launches):
            change = HONEST[number % len(HONEST)]
            study.launch(f"honest {change}", **change)
        for other, change in OTHER.items():
            study.launch(other, **change)
        study.launch("baseline")
        _print(study)


def _print(study: Study) -> None:
    outputs = Outputs(study.records)
    for number, name in enumerate(study.names):
        for found in outputs.distances.get(number, ()):
            print(f"{number:3d} {name:55s} {found} sure {found.sure_share:.0%}")
    print(outputs.summary())
    false = [n for n, name in enumerate(study.names) if "honest" in name and outputs.differs(n)]
    print(f"honest launches that differ: {len(false)} {false}")
    for number, name in enumerate(study.names):
        if name in OTHER:
            print(f"{name}: {'differs' if outputs.differs(number) else 'within tolerance'}")


if __name__ == "__main__":
    main()
