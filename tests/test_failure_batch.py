"""Failures that were provoked anew, and labelled before the classifier had seen one of them.

`README.md` of each batch in `data/failures` says how, and how many were right at first.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_failures import cut_after_the_cause, last_lines, renamed, resized, shuffled
from tuner.failures.classifier import Failure, classify, fatal_line

FAILURES = Path(__file__).parent / "data" / "failures"
BATCHES = ("new_batch", "third_batch", "fourth_batch")
LABELS: dict[str, dict[str, Any]] = {
    f"{batch}/{name}": label
    for batch in BATCHES
    for name, label in json.loads((FAILURES / batch / "labels.json").read_text()).items()
}
CAUGHT = {name: (FAILURES / f"{name}.log").read_text() for name in LABELS}
SERVES = {"max-model-len": 512}
"""The configuration that served beside them, as a night would know it."""
FAILED = sorted(name for name, label in LABELS.items() if label["kind"])
TOLD_ELSEWHERE = (
    "new_batch/vllm-lora-path-missing",
    "third_batch/vllm-generation-config-missing",
    "third_batch/vllm-model-named-not-there",
    "fourth_batch/vllm-home-is-no-folder",
)
"""The same cause in the words of a line nearby."""
SERVED = sorted(name for name, label in LABELS.items() if not label["kind"])


def of(batch: str) -> list[str]:
    return [name for name in FAILED if name.startswith(f"{batch}/")]


def explain(name: str, log: str | None = None) -> Failure | None:
    label = LABELS[name]
    return classify(
        CAUGHT[name] if log is None else log,
        engine=label["engine"],
        exit_code=label["exit_code"],
        flags=label["flags"],
        nearest=SERVES,
    )


@pytest.mark.parametrize("name", FAILED)
def test_a_provoked_failure_is_explained_as_labelled(name: str) -> None:
    label, failure = LABELS[name], explain(name)
    assert failure is not None
    assert (failure.kind, failure.action) == (label["kind"], label["action"])
    assert label["cause"] in failure.cause or name in TOLD_ELSEWHERE


@pytest.mark.parametrize("batch", BATCHES)
def test_the_flags_at_fault_are_blamed(batch: str) -> None:
    told = [name for name in of(batch) if LABELS[name]["blame"] is not None]
    wrong = [name for name in told if (f := explain(name)) and f.blame != LABELS[name]["blame"]]
    assert len(wrong) <= 0.1 * len(told), wrong


@pytest.mark.parametrize("name", SERVED)
def test_one_that_served_after_all_is_no_failure(name: str) -> None:
    assert explain(name) is None
    assert all(fatal_line(line) is None for line in CAUGHT[name].splitlines(keepends=True))


def mutants(name: str, seed: int) -> Iterator[tuple[str, str]]:
    dice, log, cause = random.Random(seed), CAUGHT[name], LABELS[name]["cause"]
    yield "renamed", renamed(log, dice)
    yield "resized", resized(log, dice)
    yield "shuffled", shuffled(log, dice)
    if cause in log:
        yield "cut", cut_after_the_cause(log, dice, cause)
        yield "last lines", last_lines(log, dice, cause)


@pytest.mark.parametrize("batch", BATCHES)
def test_mutated_logs_keep_class_and_action(batch: str) -> None:
    kept: list[bool] = []
    lost: list[tuple[str, str, str | None]] = []
    for name in of(batch):
        for how, log in mutants(name, seed=5):
            failure = explain(name, log)
            found = (failure.kind, failure.action) if failure else (None, None)
            kept.append(found == (LABELS[name]["kind"], LABELS[name]["action"]))
            if not kept[-1]:
                lost.append((name, how, found[0]))
    assert sum(kept) / len(kept) >= 0.95, lost


@pytest.mark.parametrize("batch", BATCHES)
def test_the_batch_is_large_enough_to_tell(batch: str) -> None:
    assert len(of(batch)) >= 25
    assert len({LABELS[name]["kind"] for name in of(batch)}) >= 8
