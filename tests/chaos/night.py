"""A night of short launches, with a disk and a run folder of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tests.conftest import ROOT, TUNER
from tests.stand_in_runtime import StandIn
from tuner.records import Records, TrialRecord

ROOM = Path(__file__).parent
STUDIES = {"bare": ROOM / "study", "contained": ROOM / "study", "vllm": ROOM / "vllm"}
STUDY_BYTES = "32m"
RUN_BYTES = "512m"
Kind = Literal["bare", "contained", "vllm"]
"""Rehearsal servers, the same in containers of the runtime that stands in, real vLLM on the CPU."""


class Night:
    """A study, its runs one after another, and where they leave what belongs to no study.

    Both places are small disks of their own, so that they can be filled; where this user may not
    mount, folders, and then `disks` is false.
    """

    def __init__(self, kind: Kind = "bare", *, trials: int = 40) -> None:
        self.kind = kind
        self.root = Path(tempfile.mkdtemp(prefix="c", dir="/tmp"))  # Ray's sockets have long names
        self.study, self.tmp = self.root / "night", self.root / "t"
        self.disks = all([_mount(self.study, STUDY_BYTES), _mount(self.tmp, RUN_BYTES)])
        for path in STUDIES[kind].iterdir():
            shutil.copy(path, self.study)
        self.runtime = StandIn(self.root / "runtime") if kind == "contained" else None
        self._write_study(trials)
        self.runs = 0
        self.ended: list[int] = []
        self.run: subprocess.Popen[bytes] | None = None

    def _write_study(self, trials: int) -> None:
        text = (STUDIES[self.kind] / "study.yaml").read_text().replace("ROOT", str(ROOT))
        text = text.replace("trials: 40", f"trials: {trials}")
        if self.runtime:
            image = f'image: "engine:1", containers: {{runtime: {self.runtime.program}}}'
            text = text.replace("surface: surface.yaml", f"surface: surface.yaml, {image}")
        (self.study / "study.yaml").write_text(text)

    @property
    def run_root(self) -> Path:
        """Where running servers are written down."""
        return self.tmp / f"serving-tuner-{os.getuid()}"

    def start(self) -> None:
        """Run the study, or continue it."""
        self.runs += 1
        with (self.root / f"run-{self.runs}.log").open("w") as log:
            self.run = subprocess.Popen(
                [*TUNER, "run", "night"],
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )

    def shorten(self, launches: int) -> None:
        """Let the run end, and the study with so many further launches."""
        if self.run is not None:
            self.run.send_signal(signal.SIGTERM)
            self.run.wait(timeout=240)
            self.code()
        self._write_study(len(self.records()) + launches)

    def doctor(self) -> None:
        """What a person does who does not run again at once."""
        words, env = [*TUNER, "doctor", "night"], self.environment()
        subprocess.run(
            words,
            cwd=self.root,
            capture_output=True,
            timeout=300,
            env=env,
            check=False,
        )

    def environment(self) -> Mapping[str, str]:
        """What the tuner is started with."""
        return {**os.environ, "TMPDIR": str(self.tmp), "NO_COLOR": "1"}

    def code(self) -> int | None:
        """How the run ended, None while it goes on."""
        if self.run is None:
            return None
        code = self.run.poll()
        if code is not None:
            self.ended.append(code)
            self.run = None
        return code

    def said(self) -> str:
        """What the last run said, its last lines."""
        text = (self.root / f"run-{self.runs}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-15:])

    def records(self) -> list[TrialRecord]:
        """The launches that are recorded."""
        return list(Records(self.study))

    def whole_lines(self) -> bytes:
        """The records as they lie there, what is being written left out."""
        try:
            text = (self.study / "trials.jsonl").read_bytes()
        except FileNotFoundError:
            return b""
        return text[: text.rfind(b"\n") + 1]

    def copy_to(self, folder: Path) -> None:
        """Keep what shows how it went."""
        there = folder / self.root.name
        shutil.copytree(self.study, there, ignore=shutil.ignore_patterns("filler"))
        for log in self.root.glob("run-*.log"):
            shutil.copy(log, there)

    def close(self) -> None:
        """End what is left of it and give its disks back."""
        if self.run is not None:
            self.run.send_signal(signal.SIGCONT)
            self.run.send_signal(signal.SIGTERM)
            try:
                self.run.wait(timeout=120)
            except subprocess.TimeoutExpired:
                self.run.kill()
                self.run.wait()
        if self.runtime:
            self.runtime.close()
        for path in (self.study, self.tmp):
            _unmount(path)
        shutil.rmtree(self.root, ignore_errors=True)


def _mount(path: Path, size: str) -> bool:
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(path)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _unmount(path: Path) -> None:
    for _ in range(20):
        if not path.is_mount():
            return
        subprocess.run(["umount", str(path)], capture_output=True, check=False)
        time.sleep(0.25)
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)
