"""Nights with faults: one after another is inflicted on a launch under way, and all is checked."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.faults import Fault, Gone, Inflicted, inflict
from tests.chaos.night import Kind, Night
from tests.chaos.truth import doubtful, repeated
from tests.chaos.witness import Seen, Witness, late

LIMIT_S: Mapping[Kind, float] = {"bare": 300.0, "contained": 300.0, "vllm": 1800.0}
"""A night that shows no progress for so long has stopped."""
LAST_LAUNCHES: Mapping[Kind, int] = {"bare": 3, "contained": 2, "vllm": 1}
_POLL_S = 0.05
_TRIES = 40


@dataclass(slots=True)
class Result:
    """What came of one fault. `trial` is the launch that it struck and `became` how that is
    recorded; `gone_s` is how long its server took to go, None where it had not to; `run_ended` how
    the run ended because of it; `broken` what must not have been."""

    fault: Fault
    night: Kind
    trial: int | None = None
    became: str = ""
    gone_s: float | None = None
    run_ended: int | None = None
    survived: str = ""
    broken: list[str] = field(default_factory=list)


class Suite:
    """Faults on one night after another, until there are none left."""

    def __init__(self, kind: Kind, *, seed: int, trials: int = 40) -> None:
        self.rng = random.Random(seed)
        self.night = Night(kind, trials=trials)
        self.witness = Witness(self.night.run_root)
        self.struck: dict[int, str] = {}
        self.records = b""
        self.finished = False

    def close(self) -> None:
        """End the night and give back what it had."""
        self.witness.close()
        self.night.close()

    def inflict(self, faults: Iterator[Fault]) -> Iterator[Result]:
        """Inflict faults for as long as the night goes on."""
        for fault in faults:
            result = Result(fault, self.night.kind)
            try:
                if not self._inflict_one(fault, result):
                    return
            except Stopped as error:
                result.broken.append(str(error))
            yield result
            if result.broken and self.night.run is None and self.finished:
                return

    def finish(self) -> list[str]:
        """Let the night come to its end; what is wrong with it."""
        broken = []
        if not self.finished:
            self.night.shorten(LAST_LAUNCHES[self.night.kind])
        for _ in range(3):
            try:
                self._await(lambda: self.finished or self.night.run is None, "the night ends")
            except Stopped as error:
                return [str(error)]
            if self.finished:
                break
            self._start()
        if not self.finished:
            broken.append(f"the night does not finish: {self.night.ended}\n{self.night.said()}")
        broken += self._lost() + late(self.witness.all(), _now())
        broken += [f"{seen.tag} is left at the end" for seen in self.witness.alive()]
        records = self.night.records()
        broken += repeated(records)
        if self.night.kind != "vllm":
            broken += doubtful(records, self.struck)
        return broken

    def _inflict_one(self, fault: Fault, result: Result) -> bool:
        """Whether the night was still on."""
        server = self._launch_under_way()
        if server is None:
            return False
        self._pause(fault.delay_s)
        for _ in range(_TRIES):
            server = self._launch_under_way()
            if server is None:
                return False
            before, there, begun_s = len(self.night.records()), self.witness.alive(), _now()
            try:
                inflicted = inflict(fault, self.night, server)
            except Gone:
                self._pause(_POLL_S)
                continue
            break
        else:
            raise Stopped(f"{fault.target} is never there")
        result.trial = server.trial
        self.struck[server.trial] = fault.words
        try:
            self._hold(fault, inflicted)
        finally:
            inflicted.end()
        self._follow(fault, result, before)
        self._judge_gone(result, there, begun_s, died=inflicted.over())
        result.broken += self._lost()
        result.became = self._became(server.trial)
        return True

    def _became(self, trial: int) -> str:
        for record in self.night.records():
            if record.number == trial:
                why = f" ({record.failure.kind}, {record.failure.action})" if record.failure else ""
                return f"{record.outcome}{why}"
        return "not recorded"

    def _hold(self, fault: Fault, inflicted: Inflicted) -> None:
        end_s = _now() + fault.hold_s
        while _now() < end_s and not inflicted.over():
            self._note_end()
            if fault.action == "disk full" and self.night.run is None:
                return
            time.sleep(_POLL_S)

    def _follow(self, fault: Fault, result: Result, before: int) -> None:
        """Wait until the night goes on after the fault, by itself or by the next run."""
        self._await(lambda: self._progress(before), f"progress after {fault.words}")
        if self.night.run is not None or self.finished:
            result.survived = "the night went on"
            return
        result.run_ended = self.night.ended[-1]
        result.survived = f"ended with {result.run_ended}, continued"
        if not fault.may_end_run or result.run_ended not in fault.codes:
            result.broken.append(f"the run ended with {result.run_ended}:\n{self.night.said()}")
        if any(seen.both for seen in self.witness.alive()) and self.rng.random() < 0.5:
            self.night.doctor()
            result.survived += " after doctor"
            result.broken += self._still_there("doctor")
        self._start()
        self._await(lambda: self.night.run is None or self._launched(), "the next run launches")
        result.broken += self._still_there("the next run")

    def _still_there(self, whom: str) -> list[str]:
        return [
            f"{seen.tag} survived {whom}: {seen.alive}"
            for seen in self.witness.alive()
            if seen.both
        ]

    def _progress(self, before: int) -> bool:
        self._note_end()
        if self.night.run is None:
            return True
        new = self.night.records()[before:]
        return any(record.outcome != "interrupted" for record in new)

    def _judge_gone(
        self, result: Result, there: Sequence[Seen], begun_s: float, *, died: bool
    ) -> None:
        if result.fault.frees or (died and result.fault.action == "memory"):
            self._await(lambda: all(not seen.alive for seen in there), "the server goes")
            result.gone_s = max(seen.gone_s or begun_s for seen in there) - begun_s
        early = [seen for seen in there if seen.lost_early]
        result.broken += late(there, _now())
        result.broken += [f"{seen.tag} went before its lease ended" for seen in early]

    def _lost(self) -> list[str]:
        """Records that were there and are not any more."""
        found = self.night.whole_lines()
        kept = found.startswith(self.records)
        self.records = found
        return [] if kept else ["records were lost or changed"]

    def _launch_under_way(self) -> Seen | None:
        """The server of a launch; starts the run where none goes on. None once all is over."""
        for _ in range(3):
            if self.night.run is None and not self.finished:
                self._start()
            self._await(
                lambda: self.night.run is None or self.finished or self._launched(), "a launch"
            )
            if self.finished:
                return None
            self.witness.look()
            servers = [seen for seen in self.witness.alive() if not seen.doomed_s]
            if self.night.run is not None and servers:
                return servers[-1]
        raise Stopped(f"no launch begins: {self.night.ended}\n{self.night.said()}")

    def _launched(self) -> bool:
        self._note_end()
        return any(seen.doomed_s is None and seen.leader for seen in self.witness.alive())

    def _note_end(self) -> None:
        if self.night.code() in (0, 3):
            self.finished = True

    def _start(self) -> None:
        self.night.start()

    def _pause(self, duration_s: float) -> None:
        time.sleep(duration_s)
        self._note_end()

    def _await(self, condition: Callable[[], object], what: str) -> None:
        limit_s = LIMIT_S[self.night.kind]
        end_s = time.monotonic() + limit_s
        while not condition():
            self._note_end()
            if time.monotonic() > end_s:
                raise Stopped(f"{what}: not within {limit_s:.0f} s\n{self.night.said()}")
            time.sleep(_POLL_S)


class Stopped(Exception):
    """Something that must come did not."""


def said(text: str) -> None:
    """Progress, for whoever watches."""
    print(text, file=sys.stderr, flush=True)


def _now() -> float:
    return time.monotonic()
