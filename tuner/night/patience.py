"""How long a server is waited for: phases, a deadline for each, and the rule of silence. Pure.

A server that starts is alive as long as its log says something new, its processes use a core or
something is read for them. What it says over and over, and what it says of being asked, is not
new. A hang that spins looks like a compiler at work: such silence has a deadline of its own, of
ten times the other.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.failures.log_lines import condensed, split_prefix
from tuner.failures.log_phases import PHASES, Phase, Stage, Timeline

STALL_S = 120.0
"""How long a server may show no sign of life."""

_SILENT: Mapping[Phase, float] = {"starting": 10, "loading": 10, "capturing": 10, "ready": 10}
"""Times the stall: how long it may say nothing new though it works. In the last of these phases it
listens, and all of it together may take no longer, whatever it says."""
_BLINK = 0.1
"""Times the stall: who did not look for longer was frozen, and saw nothing stand still."""
_SHORTEST_BLINK_S = 1.0
"""Whatever the stall: looks are a tenth of a second apart, and were each of them forgiven nobody
would ever be silent."""
FIRST_TOKEN = 2.5
"""Times the stall."""
_GAPS = 5
_CORES = 0.1
"""Less than this of one core, over all processes together, is what waiting takes."""
_READ_BYTES_S = 1e6
_ACCESS = re.compile(r'"(GET|POST) \S+ HTTP/')


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at a server that starts.

    `lines` are its new whole lines, `unfinished` the bytes after the last of them (a progress bar
    is one line until it ends); `work` what its processes have done since they began, None where
    that was not looked at or cannot be seen.
    """

    now_s: float
    lines: str = ""
    unfinished: int = 0
    listens: bool = False
    work: "Work | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds of processor and bytes read, of all processes of a server together."""

    cpu_s: float
    read_bytes: float


@dataclass(slots=True)
class Patience:
    """The wait for one server: in which phase it is, and why it is waited for no longer."""

    engine: str
    begun_s: float
    stall_s: float = STALL_S
    phase: Phase = "starting"
    phase_s: dict[str, float] = field(default_factory=dict)
    _stage: Stage = Stage.STARTING
    _entered_s: float = field(init=False)
    _seen_s: float = field(init=False)
    _said_s: float = field(init=False)
    _worked_s: float = field(init=False)
    _unfinished: int = 0
    _known: set[str] = field(default_factory=set)
    _work: tuple[float, Work] | None = None

    def __post_init__(self) -> None:
        self._entered_s = self._said_s = self._worked_s = self._seen_s = self.begun_s

    def look(self, look: Look) -> str:
        """Take in what was seen; why to wait no longer, in words, empty while there is hope."""
        missed_s = _missed(look.now_s - self._seen_s, self.stall_s)
        self._said_s, self._worked_s = self._said_s + missed_s, self._worked_s + missed_s
        self._seen_s = look.now_s
        self._hear(look)
        self._weigh(look)
        self._enter(look)
        self.phase_s[self.phase] = look.now_s - self._entered_s
        return self._verdict(look)

    def _hear(self, look: Look) -> None:
        said = {_body(line) for line in look.lines.splitlines() if not _ACCESS.search(line)}
        if said - self._known or look.unfinished > self._unfinished:
            self._said_s = look.now_s
        self._known |= said
        self._unfinished = look.unfinished

    def _weigh(self, look: Look) -> None:
        if look.work is None:
            return
        if self._work is not None:
            then_s, then = self._work
            took_s = look.now_s - then_s
            busy = look.work.cpu_s - then.cpu_s >= _CORES * took_s
            reads = look.work.read_bytes - then.read_bytes >= _READ_BYTES_S * took_s
            if busy or reads:
                self._worked_s = look.now_s
        self._work = (look.now_s, look.work)

    def _enter(self, look: Look) -> None:
        text = condensed(look.lines)
        reached = Timeline(text, self.engine).reached(len(text)) if text else Stage.STARTING
        self._stage = max(self._stage, min(reached, Stage.READY))
        if look.listens:
            self._stage = Stage.READY
        if PHASES[self._stage] != self.phase:
            self.phase, self._entered_s = PHASES[self._stage], look.now_s

    def _verdict(self, look: Look) -> str:
        silent_s = look.now_s - self._said_s
        quiet_s = min(silent_s, look.now_s - self._worked_s)
        deadline_s = _SILENT[self.phase] * self.stall_s
        if self._work is not None and quiet_s > self.stall_s:
            listens = "listens, and " if self.phase == "ready" else ""
            return f"{listens}no sign of life for {quiet_s:.0f} s: no new line, no work, no reading"
        if self.phase == "ready" and look.now_s - self._entered_s > deadline_s:
            return f"no token {look.now_s - self._entered_s:.0f} s after it began to listen"
        if silent_s > deadline_s:
            return f"nothing new in its log for {silent_s:.0f} s, though it works"
        return ""


@dataclass(slots=True)
class Pulse:
    """The wait for tokens of a server under load, all streams together."""

    begun_s: float
    stall_s: float = STALL_S
    _pieces: int = 0
    _seen_s: float = field(init=False)
    _moved_s: float = field(init=False)
    _gap_s: float = 0.0

    def __post_init__(self) -> None:
        self._moved_s = self._seen_s = self.begun_s

    def look(self, now_s: float, pieces: int, under_way: int) -> str:
        """Take in how many pieces of answers came so far, and how many requests wait for more;
        why to wait no longer, in words, empty while there is hope.

        The first token may take as long as a compiler; after it, five times the longest pause.
        """
        self._moved_s += _missed(now_s - self._seen_s, self.stall_s)
        self._seen_s = now_s
        gap_s = now_s - self._moved_s
        if pieces > self._pieces or not under_way:
            if pieces > self._pieces:
                self._gap_s = max(self._gap_s, gap_s)
            self._pieces, self._moved_s = pieces, now_s
            return ""
        limit_s = max(self.stall_s, _GAPS * self._gap_s)
        if not self._pieces:
            limit_s = FIRST_TOKEN * self.stall_s
        if gap_s <= limit_s:
            return ""
        return f"no token from any of {under_way} streams for {gap_s:.0f} s"


def _missed(passed_s: float, stall_s: float) -> float:
    """How long nobody looked."""
    return passed_s if passed_s > max(_BLINK * stall_s, _SHORTEST_BLINK_S) else 0.0


def _body(line: str) -> str:
    """A line without what changes each time that it is said: its time and its rank."""
    return split_prefix(line)[1].strip()
