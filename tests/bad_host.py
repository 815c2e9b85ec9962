"""Runs `tuner` on a small disk of its own: `python -m tests.bad_host FOLDER KIB WORDS...`.

In a namespace where mounting is allowed: what is mounted goes with this process. The folder's files
are copied to the disk; `disk` in its place shows what is left there when the command has ended.
Launches are made in this process.
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bad_machine import Machine
from tuner import cli


def main() -> None:
    folder, kib, *words = sys.argv[1:]
    disk = Path(folder, "disk")
    disk.mkdir()
    size = f"size={kib}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    study = shutil.copytree(Path(folder, "study"), disk / "study")
    os.chdir(study)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        Machine(study, patch, stack).prepare("here")
        stack.callback(shutil.copytree, study, Path(folder, "after"))
        sys.argv[1:] = words
        cli.main()


main()
