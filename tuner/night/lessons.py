"""Which records the search hears of, and when. Pure.

A failure that blames the host says nothing of its configuration until the baseline was launched
again: only where that served is it told a second time, as the configuration's own.
"""

from collections.abc import Iterator, Sequence

from tuner.records import TrialRecord
from tuner.verdicts.standing import judged


def all_lessons(records: Sequence[TrialRecord], *, admit: bool = False) -> Iterator[TrialRecord]:
    """What the search was told by these records, in that order, without what the host is to blame
    for by now."""
    standing = {record.number for record in judged(records)}
    for end in range(1, len(records) + 1):
        told = lessons(records[:end], admit=admit)
        yield from (r for r in told if r.number in standing)


def lessons(records: Sequence[TrialRecord], *, admit: bool = False) -> list[TrialRecord]:
    """What the last of the records tells: itself, earlier failures that it decides, and earlier
    launches whose output it shows to be another (unless the study is to `admit` those)."""
    if not records:
        return []
    last = records[-1]
    if last.kind != "baseline":
        return [last]
    before = {r.number: r.failure for r in judged(records[:-1], admit=admit)}
    now = (record for record in judged(records, admit=admit) if record.number in before)
    return [last, *(record for record in now if record.failure != before[record.number])]
