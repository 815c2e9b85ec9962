"""The evidence in a log: which lines explain a death, and which of them came first."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tuner.definitions.models import Value
from tuner.failures import blame
from tuner.failures.log_lines import (
    Block,
    Line,
    Lines,
    block_above,
    condensed,
    line_at,
    next_line,
    previous_line,
)
from tuner.failures.log_phases import ASKED, STAGES, Phase, Stage, Timeline, is_sglang
from tuner.failures.rules import DEATH, NOISE, RULES, SECONDARY
from tuner.failures.rules.rule import RAISED, Noise, Rule, Tier

_LINE_CHARS = 4000
_ABOVE_CHARS = 8000
_FOLLOW_LINES = 60
_MESSAGE_LINES = 8
_NEAR_LINES = 60
_WORDS = tuple(dict.fromkeys(word for rule in RULES for word in rule.words))
_SHOWN_AT_START = ("arg_parse", "arg_validation", "env_format", "model_files", "package_env")
"""What a launch got wrong; once a server is up such words are about a request."""
_BY_NAME = {rule.name: rule for rule in RULES}
_WRAPPER = re.compile(
    r"^(?:\w*(?:Exception|Error): )?Capture (?:piecewise )?cuda graph failed: ", re.I
)
_TAIL = re.compile(r" \[type=\w+, input_value=.*$")
_ARGUMENTS = re.compile(r"\s*\[type=\w+, input_value=ArgsKwargs.*$")
"""All that a class was made of: it names every argument, and none of them is meant."""
_BARE = re.compile(r"^[\w.]+(?:Error|Exception)$")
_UNDERLINE = re.compile(r"^\s*[\^~]+\s*$")
_ENDS = re.compile(r"Traceback|\s*$|The above exception|During handling")
_FIELD = re.compile(r"^[\w.\[\]-]+$")
_FRAME_STAGES = (
    (
        Stage.CAPTURING,
        re.compile(
            r"Capture cuda graph failed|in (?:_?capture\w*|capture_model"
            r"|init_(?:device_|cuda_|piecewise_cuda_)graphs)\b"
        ),
    ),
    (
        Stage.LOADED,
        re.compile(r"in (?:profile_run|_?dummy_run|determine_(?:num_)?available_\w+)\b"),
    ),
    (
        Stage.LOADING,
        re.compile(r"in (?:load_model|load_weights|create_weights|make_layers)\b"),
    ),
)
_SERVING_FRAME = re.compile(r"in (?:event_loop_\w+|run_batch|run_busy_loop|execute_model)\b")


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a rule explains, and what its rank was doing."""

    rule: Rule
    line: Line
    match: re.Match[str]
    stage: Stage

    @property
    def number(self) -> int | None:
        """The value that a flag at fault must have, where the message ends in one."""
        found = self.match.groupdict().get("number")
        return int(found) if found else None


class Reading:
    """One log, read once."""

    def __init__(
        self, text: str, engine: str, phase: Phase | None, flags: Mapping[str, Value]
    ) -> None:
        self._whole = text
        text = condensed(text)
        asked = [at for word in ASKED if (at := text.find(word)) >= 0]
        self._asked_to_stop = bool(asked)
        self.text = text = text[: text.rfind("\n", 0, min(asked)) + 1] if asked else text
        self.engine = engine
        self.is_sglang = is_sglang(text, engine)
        self.resolved = blame.said(text)
        self.launched = flags or self.resolved
        self._phase = phase
        self._lines = Lines(text)
        self._timeline = Timeline(text, engine, self._lines)
        self._blocks: dict[int, Block] = {}

    @staticmethod
    def is_noise(body: str) -> bool:
        """Whether a message means nothing."""
        return any(noise.pattern.search(body) for noise in NOISE)

    @cached_property
    def last_stage(self) -> Stage:
        """How far the server is at the end of the log."""
        return self._stage_at(len(self.text), None)

    @property
    def has_traceback(self) -> bool:
        """Whether Python said anything since the server was up."""
        return "Traceback (most recent" in self.text[max(self._timeline.ready_at, 0) :]

    @cached_property
    def ended_orderly(self) -> bool:
        """Whether the log ends in a shutdown that was asked for."""
        stopped = self._asked_to_stop or self.last_stage is Stage.STOPPING
        return stopped and self.death is None

    @cached_property
    def death(self) -> str | None:
        """The first line after readiness that only a dying server writes."""
        line = self._death_line
        return None if line is None else line.body.strip()[:200]

    @cached_property
    def _death_line(self) -> Line | None:
        start = max(self._timeline.ready_at, 0)
        found = [self.text.find(word, start) for word in DEATH]
        first = min((at for at in found if at >= 0), default=-1)
        if first < 0:
            return None
        return line_at(self.text, first + (self.text[first] == "\n"))

    @cached_property
    def last_words(self) -> str:
        """The last line that means anything."""
        line = self._last_line
        return "" if line is None else line.body.strip()[:200]

    @cached_property
    def _last_line(self) -> Line | None:
        line: Line | None = line_at(self.text, len(self.text.rstrip()))
        for _ in range(_NEAR_LINES):
            if line is None or (line.body.strip() and not self.is_noise(line.body)):
                return line
            line = previous_line(self.text, line)
        return None

    def place(self, hit: Hit | None) -> int | None:
        """The offset of a hit's line in the log as it was given; without a hit that of the line
        that shows the death, or of the last one that means anything."""
        line = hit.line if hit is not None else self._death_line or self._last_line
        if line is None:
            return None
        text = self.text[line.start : line.end]
        alike, offset = self.text[: line.start].split("\n").count(text), 0
        for other in self._whole.split("\n"):
            if other == text:
                if not alike:
                    return offset
                alike -= 1
            offset += len(other) + 1
        return None

    def last_is(self, pattern: re.Pattern[str]) -> bool:
        """Whether one of the last lines that mean anything shows a pattern."""
        tail = [line for line in self.text.rstrip().splitlines()[-6:] if line.strip()]
        return self.last_stage <= Stage.STARTING and any(pattern.search(line) for line in tail)

    def block(self, line: Line) -> Block:
        """The traceback that ends in a line."""
        if line.start not in self._blocks:
            self._blocks[line.start] = block_above(self.text, line)
        return self._blocks[line.start]

    def message(self, line: Line) -> str:
        """All lines of the message that a line belongs to."""
        first, above = line, previous_line(self.text, line)
        for _ in range(_MESSAGE_LINES):
            if above is None or RAISED.search(first.body) or first.prefixed:
                break
            first, above = above, previous_line(self.text, above)
        bodies = [(first if RAISED.search(first.body) else line).body]
        below = next_line(self.text, first if RAISED.search(first.body) else line)
        for _ in range(_MESSAGE_LINES):
            if below is None or below.prefixed or _ENDS.match(below.body):
                break
            bodies += [] if self.is_noise(below.body) else [below.body]
            below = next_line(self.text, below)
        return "\n".join(_ARGUMENTS.sub("", body) for body in bodies)

    def flags_of(self, line: Line) -> list[str]:
        """The launched flags that a message names, or else the source lines that raised it."""
        return blame.named_in(self.message(line), self.launched) or blame.traced_in(
            self.block(line).text, self.launched
        )

    def first_cause(self, *, died: bool) -> Hit | None:
        """The line nearest to the cause, or None where nothing explains anything."""
        died = died or self.death is not None
        hits, noises = self._hits_and_noises()
        counted = [hit for hit in hits if self._counts(hit, died)]
        best = min(counted, key=lambda hit: (hit.rule.tier, hit.line.start), default=None)
        if died and (best is None or best.rule.tier >= Tier.PEER):
            return self._last_noise(noises) or (
                best if best is None or best.rule.tier is not Tier.CLIENT else None
            )
        return best

    def cause(self, hit: Hit) -> str:
        """The message that a person would look for, on one line."""
        groups = hit.match.groupdict()
        quoted = next(
            (groups[name] for name in groups if name.startswith("cause") and groups[name]), None
        )
        text = (quoted or hit.match.string).strip()
        text = _TAIL.sub("", _WRAPPER.sub("", text))
        field = previous_line(self.text, hit.line)
        if hit.rule.name == "invalid field" and field is not None and _FIELD.match(field.body):
            text = f"{field.body}: {text}"
        followed = self._follow(hit)
        return " ".join((f"{text}: {followed}" if followed else text).split())

    def _follow(self, hit: Hit) -> str | None:
        if hit.rule.follow is None:
            return None
        line = next_line(self.text, hit.line)
        for _ in range(_FOLLOW_LINES):
            if line is None:
                return None
            found = hit.rule.follow.search(line.body)
            if found:
                return found[1]
            line = next_line(self.text, line)
        return None

    def _stage_at(self, offset: int, line: Line | None) -> Stage:
        rank = None
        if line is not None:
            block = self.block(line)
            rank = block.rank
            for stage, frames in _FRAME_STAGES:
                if frames.search(block.text):
                    return stage
        serving = line is not None and _SERVING_FRAME.search(self.block(line).text)
        marked = self._timeline.at(offset, rank)
        if marked is not None:
            return Stage.SERVING if serving and marked is Stage.READY else marked
        if self._phase is not None:
            return STAGES[self._phase]
        return Stage.SERVING if serving else Stage.STARTING

    def _hits_and_noises(self) -> tuple[list[Hit], list[tuple[Noise, Line]]]:
        hits: list[Hit] = []
        noises: list[tuple[Noise, Line]] = []
        for line in self._lines.having(_WORDS):
            body = line.body[:_LINE_CHARS]
            noise = next((noise for noise in NOISE if noise.pattern.search(body)), None)
            if noise is not None and not self._is_abandoned(line):
                noises.append((noise, line))
                continue
            hit = self._hit(line, self._with_source(line, body))
            if hit is not None:
                hits.append(hit)
        return hits, noises

    def _with_source(self, line: Line, body: str) -> str:
        """A bare exception together with the source line that raised it."""
        if not _BARE.match(body):
            return body
        above = previous_line(self.text, line)
        while above is not None and _UNDERLINE.match(above.body):
            above = previous_line(self.text, above)
        raised = above is not None and above.body.startswith("    ")
        return f"{body}: {above.body.strip()}" if raised and above is not None else body

    def _hit(self, line: Line, body: str) -> Hit | None:
        secondary = SECONDARY.search(body) is not None
        for rule in RULES:
            if not any(word in body for word in rule.words):
                continue
            if secondary and rule.tier in (Tier.LOCAL, Tier.EXCEPTION):
                continue
            match = rule.pattern.search(body)
            if match is None or (rule.unless is not None and rule.unless.search(body)):
                continue
            if self._holds(rule, line):
                return Hit(rule, line, match, self._stage_at(line.start, line))
        return None

    def _holds(self, rule: Rule, line: Line) -> bool:
        if rule.raised and not self._is_raised(line):
            return False
        if rule.stages is not None and self._stage_at(line.start, line) not in rule.stages:
            return False
        if rule.around is not None and not rule.around.search(self.block(line).text):
            return False
        if not self._speaks_of_the_launch(rule, line):
            return False
        return rule.before is None or rule.before.search(self._above(line)) is not None

    def _speaks_of_the_launch(self, rule: Rule, line: Line) -> bool:
        if rule.names_flag and not self.flags_of(line):
            return False
        if rule.quotes_flag and not blame.quoted_in(self.message(line), self.launched):
            return False
        if self.launched and blame.usual((rule.absent,), self.launched, self.engine):
            return False
        return not rule.names_variable or bool(
            blame.variables_named_in(self.message(line), self.launched)
        )

    def _above(self, line: Line) -> str:
        above = self.text[max(0, line.start - _ABOVE_CHARS) : line.start].splitlines(keepends=True)
        return "".join(kept for kept in above if not self.is_noise(kept))

    def _is_raised(self, line: Line) -> bool:
        above: Line | None = line
        for _ in range(_MESSAGE_LINES):
            if above is None:
                return False
            if RAISED.search(above.body):
                return True
            if above.prefixed and above is not line:
                return False
            above = previous_line(self.text, above)
        return False

    def _is_abandoned(self, line: Line) -> bool:
        """Whether a client's departure was raised where nobody waited for it."""
        above = self.text[max(0, line.start - 200) : line.start]
        return "Request is disconnected" in line.body and "never retrieved" in above

    def _counts(self, hit: Hit, died: bool) -> bool:
        """Whether a hit can have been the death: the server did not live on after it."""
        if hit.rule.tier is Tier.HARDWARE:
            return True
        if hit.line.start < self._timeline.ready_at:
            return False
        if hit.rule.recovers and self._timeline.served_after(hit.line.end):
            return False
        if hit.stage < Stage.READY or hit.rule.tier is Tier.CLIENT:
            return True
        of_request = hit.rule.kind in _SHOWN_AT_START
        if hit.rule.tier is not Tier.EXCEPTION and not hit.rule.raised and not of_request:
            return self.death is not None or not self._timeline.served_after(hit.line.end)
        if "hit an exception: " in self.block(hit.line).text:
            return True
        return died and not self._timeline.served_after(hit.line.end)

    def _last_noise(self, noises: list[tuple[Noise, Line]]) -> Hit | None:
        """The suspicious noise that became the last word of a server that died: what it said
        before it was ready, or before it answered further requests, it lived through."""
        death = self._death_line
        suspects = [
            (noise, line)
            for noise, line in noises
            if noise.suspect is not None
            and line.start >= self._timeline.ready_at
            # where a death is announced, peers may still answer between the two lines of it
            and (death is not None or not self._timeline.served_after(line.end))
        ]
        if not suspects:
            return None
        noise, line = suspects[-1]
        end = len(self.text) if death is None or death.start < line.end else death.start
        between = self.text[line.end : end].splitlines()
        rule = _BY_NAME[noise.suspect or ""]
        match = rule.pattern.search(line.body)
        if match is None or sum(not self.is_noise(text) for text in between) > _NEAR_LINES:
            return None
        return Hit(rule, line, match, self._stage_at(line.start, line))
