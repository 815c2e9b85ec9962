"""What is kept of each request of a trial: when and how much, without prompts or texts; of a
recorded question a hash."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from tuner.definitions.models import Rung
from tuner.errors import writing
from tuner.measuring.measurement import RequestTiming


def keep_requests(folder: Path, rung: Rung, timings: Iterable[RequestTiming], attempt: int) -> None:
    """Append a rung to the folder's `requests.jsonl.gz`, one line a request; `attempt` counts from
    0. Raises HostError where it cannot be written."""
    path = folder / "requests.jsonl.gz"
    with writing(path), gzip.open(path, "at", compresslevel=3) as out:
        for timing in timings:
            line = {
                "concurrency": rung.concurrency,
                "request_rate": rung.request_rate,
                "attempt": attempt,
                "stream": timing.stream,
                "index": timing.index,
                "due_s": timing.due_s,
                "sent_s": timing.sent_s,
                "first_s": timing.events[0][0] if timing.events else None,
                "last_s": timing.events[-1][0] if timing.events else None,
                "done_s": timing.done_s,
                "events": len(timing.events),
                "input_tokens": timing.input_tokens,
                "output_tokens": timing.output_tokens,
                "error": timing.error,
                **({"prompt": timing.prompt} if timing.prompt else {}),
            }
            out.write(json.dumps(line) + "\n")
