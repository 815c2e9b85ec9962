"""What a rule is: one kind of line that explains a death, and why it is believed."""

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from tuner.failures.log_phases import Stage

Action = Literal["never", "once", "stop-study"]


class Tier(IntEnum):
    """How near to the cause a line of its kind stands; the lowest wins, then the earliest.

    A rank that dies takes its peers, their watchdogs, the supervisor and the clients with it, in
    an order that a shared pipe does not keep: so kind before time.
    """

    HARDWARE = 0
    HOST = 1
    LOCAL = 2
    FAULT = 3
    EXCEPTION = 4
    PEER = 5
    WATCHDOG = 6
    SUPERVISOR = 7
    CLIENT = 8


BEFORE_READY = frozenset(stage for stage in Stage if stage < Stage.READY)
UP = frozenset({Stage.READY, Stage.SERVING, Stage.STOPPING})

RAISED = re.compile(
    r"^\s*(?:\w+: )?(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Unsupported|Interrupt)(?::|$)"
    r"|Value error,|Assertion failed,)"
)
"""A line on which an exception says its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of evidence.

    `words`: the line holds one of them (the cheap test that is made first); `pattern` then finds
    the message, its groups `cause*` where only a part of the line is worth quoting, `number` where
    a flag of that value is at fault; `unless`: what the line must not say. `raised`: the words
    count only on an exception's own line, not in a warning. `stages`: where the rank must have
    been. `around`: what its traceback must show; `before`: what must stand in the log above.
    `recovers`: a server that answers afterwards has survived it. `names_flag`: the message must
    name a flag of the launch; `quotes_flag`: it must quote the value of one; `names_variable`: it
    must name a variable of the launch or quote its value; `absent`: flags (or concepts) that the
    launch must not have. `follow`: a later line of the same message that is quoted too (its first
    group). `blame`: flags (or concepts of `names`), in groups: of the first group with a member in
    the launch. None in action, advice or blame leaves it to the class.
    """

    name: str
    kind: str
    tier: Tier
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    reason: str
    raised: bool = False
    stages: frozenset[Stage] | None = None
    around: re.Pattern[str] | None = None
    before: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    recovers: bool = False
    names_flag: bool = False
    quotes_flag: bool = False
    names_variable: bool = False
    absent: tuple[str, ...] = ()
    follow: re.Pattern[str] | None = None
    blame: tuple[tuple[str, ...], ...] | None = None
    action: Action | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A line that frightens and means nothing: healthy logs have it too.

    `suspect` says what such a line would have meant if a server died right after it.
    """

    name: str
    pattern: re.Pattern[str]
    reason: str
    suspect: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureClass:
    """What all failures of one class have in common."""

    summary: str
    action: Action
    advice: str
    blame: tuple[tuple[str, ...], ...] = field(default=())


def rule(
    name: str,
    kind: str,
    tier: Tier,
    words: tuple[str, ...],
    pattern: str,
    reason: str,
    *,
    raised: bool = False,
    stages: frozenset[Stage] | None = None,
    around: str | None = None,
    before: str | None = None,
    unless: str | None = None,
    recovers: bool = False,
    names_flag: bool = False,
    quotes_flag: bool = False,
    names_variable: bool = False,
    absent: tuple[str, ...] = (),
    follow: str | None = None,
    blame: tuple[tuple[str, ...], ...] | None = None,
    action: Action | None = None,
    advice: str | None = None,
) -> Rule:
    """A rule from plain strings, for the tables."""
    return Rule(
        name=name,
        kind=kind,
        tier=tier,
        words=words,
        pattern=re.compile(pattern),
        reason=reason,
        raised=raised,
        stages=stages,
        around=re.compile(around) if around else None,
        before=re.compile(before) if before else None,
        unless=re.compile(unless) if unless else None,
        recovers=recovers,
        names_flag=names_flag,
        quotes_flag=quotes_flag,
        names_variable=names_variable,
        absent=absent,
        follow=re.compile(follow) if follow else None,
        blame=blame,
        action=action,
        advice=advice,
    )
