"""Launches whose measurement was void: made again, within limits, and counted as such. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from tuner.records import TrialRecord

RELAUNCHES = 2
"""Times that a launch is made again because its measurement was void. What the search proposed is
not: another proposal is worth more."""
IN_A_ROW = 3
"""Void launches one after another, of whatever, after which the baseline is launched; where that is
void too, or was among them as the last, nothing can be measured here, and the run ends."""


def made(launches: Iterable[TrialRecord]) -> int:
    """How many launches of one kind count as made: those that tell something, and void ones beyond
    what may be made again."""
    found = Counter(record.tells for record in launches if record.outcome != "interrupted")
    return found[True] + max(0, found[False] - RELAUNCHES)


def given_up(records: Iterable[TrialRecord]) -> set[str | None]:
    """Hypotheses whose launches were void too often to be made once more."""
    void = Counter(r.hypothesis for r in records if r.outcome == "invalid")
    return {hypothesis for hypothesis, times in void.items() if times > RELAUNCHES}


def void_in_a_row(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The last launches, the newest first, where `IN_A_ROW` or more were void; else none."""
    launches = (record for record in reversed(records) if record.outcome != "interrupted")
    void = list(takewhile(lambda record: record.outcome == "invalid", launches))
    return void if len(void) >= IN_A_ROW else []
