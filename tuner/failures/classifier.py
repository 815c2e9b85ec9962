"""Why a server failed: log + exit + phase → class, first cause, blame, what to do. Pure.

The data is in `tuner.failures.rules`; this module only reads it. A log is searched for the words
of all rules; the lines found lose their prefix, noise is dropped, and of the lines that a rule
explains the one with the best tier wins, then the first. Marks of the engine's progress say what
a rank was doing, which tells look-alikes apart.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tuner.definitions.models import Value
from tuner.failures import blame
from tuner.failures.evidence import Hit, Reading
from tuner.failures.log_lines import split_prefix
from tuner.failures.log_phases import PHASES, Stage
from tuner.failures.log_phases import Phase as Phase
from tuner.failures.log_phases import phase_of as phase_of
from tuner.failures.rules import CLASSES, EXITS, FATAL, KILLED_SERVING, SILENT_CHILD
from tuner.failures.rules.names import flag_of
from tuner.failures.rules.rule import Action as Action
from tuner.failures.rules.rule import Rule, Tier
from tuner.frozen import Frozen

_NONE: Mapping[str, Value] = MappingProxyType({})
_PLACE = re.compile(r"\{([a-z0-9-]+)\}")
_DISTRIBUTED = re.compile(
    r"Init torch distributed begin|using nccl==|NCCL INFO|world size \d+ is assigned|joined"
)
_CAUSE_CHARS = 400
_TRACED = ("arg_validation", "divisibility", "engine_exception")
"""Classes whose traceback shows which argument was looked at."""
_ALTERED = "Take the flag back, or correct it: without it the model could be read."
_ASKED = (-15, 143, -2, 130)
"""Exit codes of a server that was told to stop."""
_KILLED = (-9, 137)


class Failure(Frozen):
    """A failed launch, understood.

    `kind` is a class of the taxonomy, `cause` the line that came first in causal order, `blame`
    the flags or variables it points at, `action` whether the like may be tried again.
    """

    kind: str
    cause: str
    blame: list[str] = []
    action: Action
    advice: str
    phase: Phase
    exit_code: int | None = None


def fatal_line(text: str) -> str | None:
    """The first line of new log text that dooms a server, or None.

    Give it whole lines: what was written since the last call up to the last newline. Only words
    that no server survives count, so that a wait may end at once; the log still grows after it.
    """
    match = FATAL.search(text)
    while match is not None:
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        _, body, _ = split_prefix(text[start : len(text) if end < 0 else end])
        if not Reading.is_noise(body):
            return body.strip()[:_CAUSE_CHARS]
        match = FATAL.search(text, match.end())
    return None


def classify(
    log: str,
    *,
    engine: str,
    exit_code: int | None = None,
    phase: Phase | None = None,
    flags: Mapping[str, Value] = _NONE,
    nearest: Mapping[str, Value] | None = None,
) -> Failure | None:
    """The failure that a log tells of, or None for a healthy one.

    `exit_code` says that the server ended by itself with that code: any code, 0 too, is a death
    then, unless it was told to stop (SIGTERM, SIGINT, or the log shows an orderly shutdown).
    `flags` are the launch's flags and variables by name, `nearest` those of the nearest
    configuration that worked.
    """
    reading = Reading(log, engine, phase, flags)
    return _classified(reading, exit_code, flags, nearest)[0]


def located(
    log: str, *, engine: str, exit_code: int | None = None, phase: Phase | None = None
) -> tuple[Failure | None, int | None]:
    """The same of a log alone, and the offset of the line that shows the cause."""
    reading = Reading(log, engine, phase, _NONE)
    failure, hit = _classified(reading, exit_code, _NONE, None)
    return failure, None if failure is None else reading.place(hit)


def _classified(
    reading: Reading,
    exit_code: int | None,
    flags: Mapping[str, Value],
    nearest: Mapping[str, Value] | None,
) -> tuple[Failure | None, Hit | None]:
    died = exit_code not in (None, *_ASKED) and not reading.ended_orderly
    hit = reading.first_cause(died=died)
    if hit is not None:
        return _explained(hit, reading, exit_code, flags, nearest), hit
    if died or reading.death is not None:
        return _unexplained(reading, exit_code, flags, nearest), None
    return None, None


def gave_up(
    log: str,
    *,
    engine: str,
    phase: Phase | None = None,
    waited_s: float | None = None,
    heard: str = "",
    stalled: str = "",
    flags: Mapping[str, Value] = _NONE,
    nearest: Mapping[str, Value] | None = None,
) -> Failure:
    """The failure of a server that is alive and was waited for in vain.

    What the log explains comes first; a hang has no text, so its class is by how far it came.
    `heard` is what it answered instead of getting ready, empty where it did not listen; `stalled`
    why it was waited for no longer, empty where all the time was up.
    """
    failure = classify(log, engine=engine, phase=phase, flags=flags, nearest=nearest)
    if failure is not None:
        return failure
    reading = Reading(log, engine, phase, flags)
    stage, last = reading.last_stage, reading.last_words
    waited = f" after {waited_s:.0f} s" if waited_s is not None else ""
    cause = f"nothing new{waited}" if last else f"no output{waited}"
    cause = f"listens, and is not ready{waited}: {heard}" if heard else cause
    cause = "; ".join(filter(None, (stalled, heard))) if stalled else cause
    cause += f"; last line: {last}" if last else ""
    action: Action | None = None
    if stage >= Stage.READY:
        kind = "engine_stall"
    elif "Registering 0 cuda graph addresses" in log:
        kind = "masked_hang"
    else:
        kind = "never_ready"
        action = "stop-study" if reading.last_is(_DISTRIBUTED) else None
    return verdict(
        kind,
        cause,
        engine=engine,
        phase=PHASES[stage],
        blame=_suspects(CLASSES[kind].blame, [], reading, flags, nearest),
        action=action,
    )


def verdict(
    kind: str,
    cause: str,
    *,
    engine: str,
    phase: Phase,
    blame: list[str] | None = None,
    action: Action | None = None,
    advice: str | None = None,
    exit_code: int | None = None,
) -> Failure:
    """A failure of a known class with what the class says of action and advice.

    For what no log shows: a server never ready, a stall after a restart, wrong output.
    """
    known = CLASSES[kind]
    text = advice or known.advice
    return Failure(
        kind=kind,
        cause=cause,
        blame=blame or [],
        action=action or known.action,
        advice=_PLACE.sub(lambda found: flag_of(found[1], engine), text),
        phase=phase,
        exit_code=exit_code,
    )


def _suspects(
    groups: tuple[tuple[str, ...], ...],
    named: list[str],
    reading: Reading,
    flags: Mapping[str, Value],
    nearest: Mapping[str, Value] | None,
) -> list[str]:
    """The flags that the message names, unless they are as they were and usual ones are not; else
    the usual ones of the launch; else what is new."""
    launched = reading.launched
    new = [] if nearest is None else blame.changed(flags, nearest)
    usual = blame.usual(groups, launched, reading.engine)
    if named and not set(named) & set(new) and set(usual) & set(new):
        named = []
    return blame.narrow(named or usual or new, new)


def _explained(
    hit: Hit,
    reading: Reading,
    exit_code: int | None,
    flags: Mapping[str, Value],
    nearest: Mapping[str, Value] | None,
) -> Failure:
    rule = hit.rule
    altering = _altering(rule, flags, nearest)
    if altering:
        return verdict(
            rule.kind,
            reading.cause(hit)[:_CAUSE_CHARS],
            engine=reading.engine,
            phase=PHASES[hit.stage],
            blame=altering,
            action="never",
            advice=_ALTERED,
            exit_code=exit_code,
        )
    return verdict(
        rule.kind,
        reading.cause(hit)[:_CAUSE_CHARS],
        engine=reading.engine,
        phase=PHASES[hit.stage],
        blame=_blame(hit, reading, flags, nearest),
        action=rule.action,
        advice=rule.advice,
        exit_code=exit_code,
    )


def _altering(
    rule: Rule, flags: Mapping[str, Value], nearest: Mapping[str, Value] | None
) -> list[str]:
    """The new flags that may have the model read otherwise: without them its files were whole.

    Where only an exception's frames speak of the model, any new flag may.
    """
    if rule.kind != "model_files" or rule.action is not None or nearest is None:
        return []
    new = blame.changed(flags, nearest)
    return blame.altering(new) or (new if rule.tier is Tier.EXCEPTION else [])


def _blame(
    hit: Hit,
    reading: Reading,
    flags: Mapping[str, Value],
    nearest: Mapping[str, Value] | None,
) -> list[str]:
    rule, message = hit.rule, reading.message(hit.line)
    groups = CLASSES[rule.kind].blame if rule.blame is None else rule.blame
    if rule.kind == "env_format":
        return blame.variables_in(reading.block(hit.line).text, flags)
    if (rule.action or CLASSES[rule.kind].action) == "stop-study":
        return blame.usual(groups, flags, reading.engine) if flags else []
    named = blame.sized(hit.number, reading.launched)
    named = named or blame.named_in(message, reading.launched)
    if not named and rule.kind == "arg_parse":
        named = blame.given_by_file(reading.launched) or blame.written_in(message)
    if not named and rule.kind in _TRACED:
        named = reading.flags_of(hit.line)
        written = blame.written_in(message)
        written += blame.attributes_in(reading.block(hit.line).text)
        named = named or blame.kin_of(written, reading.launched)
    return _suspects(groups, named, reading, flags, nearest)


def _unexplained(
    reading: Reading,
    exit_code: int | None,
    flags: Mapping[str, Value],
    nearest: Mapping[str, Value] | None,
) -> Failure:
    form = EXITS.get(exit_code or 0, EXITS[0])
    killed, up = exit_code in _KILLED, reading.last_stage >= Stage.READY
    if killed and reading.is_sglang:
        form = EXITS[0]
    if killed and up and reading.death is None:  # SGLang, too, kills itself only after a word
        form = SILENT_CHILD if reading.is_sglang else form
        form, nearest = replace(form, action="once", advice=KILLED_SERVING), None
    elif form is EXITS[0] and up and not reading.has_traceback:
        form = SILENT_CHILD
    said = reading.death or reading.last_words
    ended = "died" if exit_code is None else f"exited with code {exit_code}"
    cause = f"{ended} without saying why" + (f"; last line: {said}" if said else "")
    new = [] if nearest is None else blame.changed(flags, nearest)
    return verdict(
        form.kind,
        cause[:_CAUSE_CHARS],
        engine=reading.engine,
        phase=PHASES[reading.last_stage],
        blame=new,
        action=form.action,
        advice=form.advice,
        exit_code=exit_code,
    )
