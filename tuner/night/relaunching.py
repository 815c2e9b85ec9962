"""Launches whose measurement was void: made again, within limits, and counted as such. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from tuner.records import TrialRecord

RELAUNCHES = 2
"""Times that a launch is made again because its measurement was void. What the search proposed is
not: another proposal is worth more."""
BASELINE_IN_A_ROW = 3
"""Void launches of the baseline one after another that end a run: nothing can be compared here."""


def made(launches: Iterable[TrialRecord]) -> int:
    """How many launches of one kind count as made: those that tell something, and void ones beyond
    what may be made again."""
    found = Counter(record.tells for record in launches if record.outcome != "interrupted")
    return found[True] + max(0, found[False] - RELAUNCHES)


def given_up(records: Iterable[TrialRecord]) -> set[str | None]:
    """Hypotheses whose launches were void too often to be made once more."""
    void = Counter(r.hypothesis for r in records if r.outcome == "invalid")
    return {hypothesis for hypothesis, times in void.items() if times > RELAUNCHES}


def baseline_void(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The last launch of the baseline, where that many in a row were void."""
    launches = [r for r in reversed(records) if r.kind == "baseline"]
    launches = [r for r in launches if r.outcome != "interrupted"]
    void = list(takewhile(lambda record: record.outcome == "invalid", launches))
    return void[0] if len(void) >= BASELINE_IN_A_ROW else None
