"""Runs `tuner` on a small disk of its own: `python -m tests.bad_host FOLDER KIB WORDS...`.

For a namespace where mounting is allowed: what is mounted goes with this process. `study` of the
folder is copied to the disk, which `--read-only` before the words makes so; `after` in its place is
what lies there when the command has ended. Launches are made in this process.
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import bad_launches  # noqa: F401  (preparations of hosts)
from tests.bad_machine import Machine
from tuner import cli


def main() -> None:
    folder, kib, *words = sys.argv[1:]
    disk = Path(folder, "disk")
    disk.mkdir()
    size = f"size={kib}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    study = shutil.copytree(Path(folder, "study"), disk / "study")
    if words[0] == "--read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        words = words[1:]
    os.chdir(study)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        Machine(study, patch, stack).prepare("here")
        stack.callback(shutil.copytree, study, Path(folder, "after"))
        sys.argv[1:] = words
        cli.main()


main()
