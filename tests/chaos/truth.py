"""What a surface would have measured, and which records say something else."""

import json
from collections.abc import Mapping, Sequence

import yaml

from tests.chaos.night import STUDIES
from tuner.records import TrialRecord

TOLERANCE = 0.4
"""Busy machines measure less than the surface says; a fault that matters halves it or worse."""
LEVELS = (1.0, 8.0)


def doubtful(records: Sequence[TrialRecord], struck: Mapping[int, str]) -> list[str]:
    """Trials that a fault struck, that are scored all the same and should not be, in words."""
    found = []
    for record in records:
        if record.outcome != "completed" or record.number not in struck:
            continue
        if tuple(rung.level for rung in record.rungs) != LEVELS:
            found.append(f"trial {record.number} is complete without all of its rungs")
        for rung in record.rungs:
            true = _truth(record, rung.level)
            if not rung.void and abs(rung.output_tok_s / true - 1) > TOLERANCE:
                said = f"{rung.output_tok_s:.1f} tok/s at {rung.level:g}, in truth {true:.1f}"
                found.append(
                    f"{struck[record.number]}: trial {record.number} is scored with {said}"
                )
    return found


def repeated(records: Sequence[TrialRecord]) -> list[str]:
    """Numbers that were given twice, and configurations that the search paid for twice."""
    numbers = [record.number for record in records]
    searched = [
        json.dumps(record.values, sort_keys=True)
        for record in records
        if record.kind == "search" and _settled(record)
    ]
    found = ["a number was given twice"] if len(set(numbers)) < len(numbers) else []
    return found + [f"searched twice: {one}" for one in set(searched) if searched.count(one) > 1]


def _settled(record: TrialRecord) -> bool:
    """Whether nothing more is to be learnt of it: what failed by chance may be tried again."""
    never = record.failure is not None and record.failure.action == "never"
    return record.outcome in ("completed", "pruned") or never


def _truth(record: TrialRecord, level: float) -> float:
    surface = yaml.safe_load((STUDIES["bare"] / "surface.yaml").read_text())
    true = next(p["output_tok_s"] for p in surface["table"] if p["concurrency"] == level)
    chunk = record.values.get("chunked-prefill-size") or 0
    effect = surface["effects"][0]
    fast = int(chunk) >= effect["when"]["chunked-prefill-size"]["ge"]
    return float(true) * (effect["throughput"] if fast else 1.0)
