"""What servers were asked, and what they had forgotten before: in words. Pure."""

from collections.abc import Iterable

from tuner.records import TrialRecord

DONE = "done"
"""What a rung's `flush` says where the engine forgot its prefixes."""


def forgotten(records: Iterable[TrialRecord]) -> str:
    """Whether engines forgot their prefixes between rungs; empty where no record tells."""
    told = [rung.flush for record in records for rung in record.rungs if rung.flush is not None]
    done = told.count(DONE)
    if done == len(told):
        return f"prefixes were forgotten before each of {done} rungs" if told else ""
    why = next(said for said in told if said != DONE)
    return f"prefixes were forgotten before {done} of {len(told)} rungs: {why}"
