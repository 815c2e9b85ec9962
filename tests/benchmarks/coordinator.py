"""The tuner's own seconds per trial, and where a trial's time goes.

    python -m tests.benchmarks.coordinator [STUDY]

The first table is the loop alone: choosing, recording with fsync, telling Optuna, judging, over
launches that take no time. The second, given a study that has run, splits what its launches took.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from tests.nightly import Heard, SimulatedExecutor, completed, study
from tuner.night.study import StudyRun
from tuner.records import Records
from tuner.search.searcher import Searcher
from tuner.verdicts.analysis import time_use

GOAL_S = 1.0


def seconds_per_trial(trials: int) -> float:
    """The whole loop over so many launches, divided by their number."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loaded = study(folder, {"trials": trials})
        executor = SimulatedExecutor(lambda order: completed(order, 1.0, rng.gauss(0, 0.01)))
        searcher = Searcher(
            loaded.space, sampler="TPESampler", seed=1, journal=folder / "journal", name="b"
        )
        begun = time.perf_counter()
        heard = Heard()
        StudyRun(loaded, Records(folder), executor, searcher, heard).run()
        return (time.perf_counter() - begun) / len(heard.records)


def main() -> None:
    """Print both tables."""
    for trials in (12, 24, 40):
        own = seconds_per_trial(trials)
        print(f"{trials:4d} trials: {1000 * own:7.1f} ms of the coordinator a trial")
    if len(sys.argv) > 1:
        records = Records(Path(sys.argv[1]))
        for use in time_use(records):
            share = f"{use.share:6.1%}"
            print(f"{use.by:8s} {use.name:14s} {use.launches:4d} {use.seconds:9.1f} s {share}")


if __name__ == "__main__":
    main()
