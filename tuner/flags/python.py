"""Another Python: a question is sent to it as text, and its answer is one line of JSON."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """The words that run a Python, with the variables of the launch over those of this process."""

    words: Sequence[str]
    env: Mapping[str, str]

    def answer(self, source: str, *arguments: str, timeout_s: float) -> Any:
        """What the source printed last, None where it did not come to that."""
        try:
            done = subprocess.run(
                [*self.words, "-c", source, *arguments],
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
            return json.loads(done.stdout.decode(errors="replace").splitlines()[-1])
        except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
            return None
