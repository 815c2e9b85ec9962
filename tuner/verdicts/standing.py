"""What failures say of their configurations once the baseline's launches are heard. Pure.

A launch of the baseline tells a bad flag from a bad host: where it serves the flags were at fault,
where it dies as well nothing is held against them.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal

from tuner.failures.classifier import Action, Failure
from tuner.records import TrialRecord
from tuner.verdicts.outputs import faithful

ALIKE = 3
"""Different configurations that die alike in a row before the baseline is asked."""
_HOSTS_ALONE = frozenset({"gpu_hw", "gpu_occupied", "disk_full", "fd_limit"})
"""Classes that stay the host's though the baseline serves later: the host has been mended."""
_FLAGS_ALONE = frozenset(
    {"arg_parse", "arg_validation", "divisibility", "env_format", "wrong_output"}
)
"""Classes that name their flags, however many configurations share them."""
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?")

_Heard = Literal["served", "failed", "unheard"]


def judged(records: Iterable[TrialRecord], *, admit: bool = False) -> list[TrialRecord]:
    """The records as the baseline's launches make them.

    Launches of a configuration whose output is not the baseline's are failed ones, unless the study
    is to `admit` those.
    Failures in a row after which the baseline did not serve either are left out. A failure that
    blamed the host is its configuration's where the baseline served next: its action is "never"
    then, or "once" where only a host can be at fault.
    """
    standing = _standing(records)
    return standing if admit else faithful(standing)


def _standing(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    found: list[TrialRecord] = []
    heard: _Heard = "unheard"
    in_a_row = False
    beside: TrialRecord | None = None  # the record that follows, where that is the baseline's
    for record in reversed(list(records)):
        if record.outcome == "interrupted":
            found.append(record)
        elif record.kind == "baseline":
            heard = _heard(record, beside)
            in_a_row, beside = True, record
            found.append(record)
        else:
            in_a_row = in_a_row and record.failure is not None
            beside = None
            found += _judged(record, heard, in_a_row=in_a_row)
    return found[::-1]


def _heard(baseline: TrialRecord, following: TrialRecord | None) -> _Heard:
    """Whether the baseline served, a second try included where the first asks for one."""
    if baseline.failure is None:
        return "served"
    again = baseline.failure.action == "once" and following is not None
    return "served" if again and following and following.failure is None else "failed"


def _judged(record: TrialRecord, heard: _Heard, *, in_a_row: bool) -> list[TrialRecord]:
    if record.failure is None:
        return [record]
    blames_host = record.failure.action == "stop-study"
    if heard == "failed" and (in_a_row or blames_host):
        return []
    if heard == "served" and blames_host:
        action: Action = "once" if record.failure.kind in _HOSTS_ALONE else "never"
        failure = record.failure.model_copy(update={"action": action})
        return [record.model_copy(update={"failure": failure})]
    return [record]


def sure(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The launches that failed by the fault of their flags beyond doubt: their failure names them,
    or a later launch has served, so that the host was well."""
    found: list[TrialRecord] = []
    served = False
    for record in reversed(judged(records)):
        served = served or (record.failure is None and record.outcome != "interrupted")
        failure = record.failure
        if record.kind != "baseline" and failure is not None and failure.action == "never":
            found += [record] if served or failure.kind in _FLAGS_ALONE else []
    return found[::-1]


def suspicious(records: Sequence[TrialRecord]) -> str:
    """Why the baseline should be launched now, in a few words; empty where nothing asks for it.

    A failure blamed the host, or several configurations in a row died alike.
    """
    launches = [record for record in reversed(records) if record.outcome != "interrupted"]
    since = list(takewhile(lambda record: record.kind != "baseline", launches))
    blaming = [r for r in since if r.failure is not None and r.failure.action == "stop-study"]
    if blaming:
        return f"trial {blaming[0].number} blames the host"
    in_a_row = list(takewhile(lambda record: record.failure is not None, since))
    signs = [_sign(record.failure) for record in in_a_row if record.failure is not None]
    alike = list(takewhile(lambda sign: sign == signs[0], signs))
    keys = {record.key for record in in_a_row[: len(alike)]}
    if len(keys) < ALIKE or signs[0][0] in _FLAGS_ALONE:
        return ""
    return f"{len(keys)} configurations in a row died alike"


def _sign(failure: Failure) -> tuple[str, str]:
    """What is the same in failures of one cause: numbers and addresses are not."""
    return failure.kind, _VARYING.sub("#", failure.cause)
