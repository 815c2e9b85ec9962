"""What a run shows while it runs: a live panel on a terminal, plain lines everywhere else."""

import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tuner.console.terminal import label, terminal
from tuner.definitions.models import Value
from tuner.definitions.validation import LoadedStudy
from tuner.measuring.measurement import RungMeasurement
from tuner.night.budget import BudgetClock
from tuner.night.course import TrialNote, TrialOrder
from tuner.night.launches import time_scale
from tuner.night.schedule import Job
from tuner.records import Records, TrialRecord
from tuner.verdicts.arms import Arms
from tuner.verdicts.limits import broken_words
from tuner.verdicts.score import score, slo_breaches, throughput
from tuner.views.changed import changes
from tuner.views.results import outcome_words, rehearsal
from tuner.views.words import SIGN, plain, said_changes, unit_of


def progress(study: LoadedStudy) -> "PlainProgress":
    """A live panel where stderr is a terminal, plain lines where it is not."""
    console = terminal(stderr=True)
    return LiveProgress(study, console) if console.is_terminal else PlainProgress(study, console)


class PlainProgress:
    """One line an event, to stderr: for pipes, logs and cron."""

    def __init__(self, study: LoadedStudy, console: Console) -> None:
        self._study = study
        self._console = console
        self._clock: BudgetClock | None = None
        self._in_flight = 0
        self._records: Sequence[TrialRecord] = list(Records(study.folder))

    def __enter__(self) -> Self:
        for line in label(rehearsal(self._study), time_scale(self._study)):
            self._console.print(line, soft_wrap=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def preparing(self, what: str) -> None:
        """Say what is waited for."""
        self._say(what)

    def started(self, job: Job, order: TrialOrder) -> None:
        """Name the launch, and how many the budget leaves after it."""
        self._in_flight += 1
        what = order.hypothesis or job.kind
        why = f" ({job.reason})" if job.reason else ""
        self._say(f"trial {order.number} {what}{why}: {self._what(order.values)}{self._to_go()}")

    def note(self, note: TrialNote) -> None:
        """Say the numbers of a rung that is done."""
        if note.rung is not None:
            self._say(f"trial {note.number} at {note.rung.said}: {self._rung(note.rung)}")
        elif note.again:
            self._say(f"trial {note.number} at {note.at}: measured again")

    def _rung(self, rung: RungMeasurement) -> str:
        if rung.void:
            return "void: " + "; ".join(d.said for d in rung.doubts if d.voids)
        return f"{throughput(rung, self._study.objective):.4g} {self._unit}"

    @property
    def _unit(self) -> str:
        return unit_of(self._study.objective.score)

    def ended(self, record: TrialRecord, records: Sequence[TrialRecord]) -> None:
        """Say what came of the launch."""
        self._in_flight -= 1
        self._records = records
        arms = self._arms()
        value = score(record.rungs, arms.reference, self._study.objective)
        guess = SIGN if record.replicas.extrapolated else ""
        text = f", score {value:.4f}{guess}" if value is not None else ""
        broken = "" if record.failure is not None else broken_words(arms, [record])
        text += f", {broken}" if broken else ""
        self._say(
            f"trial {record.number} {outcome_words(self._study, record)}{text}"
            f" ({record.duration_s:.1f} s)"
        )

    def tick(self, clock: BudgetClock) -> None:
        """Lines are for events, not for time; what is left goes into the next."""
        self._clock = clock

    def _to_go(self) -> str:
        """Exact where launches are counted; where time is, by what a launch took so far."""
        left = self._clock and self._clock.launches_left(self._records, self._in_flight)
        if self._clock is None or left is None:
            return ""
        about = "about " if self._clock.seconds_left() is not None else ""
        return f" ({about}{left} left)" if left else " (the last)"

    def _arms(self) -> Arms:
        return Arms(self._records, self._study.objective, self._study.baseline.key)

    def _what(self, values: dict[str, Value]) -> str:
        return said_changes(changes(values, self._study))

    def _say(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {plain(text)}", soft_wrap=True)


class LiveProgress(PlainProgress):
    """The same lines scrolling above a panel: launch, rungs, best so far, time left."""

    def __init__(self, study: LoadedStudy, console: Console) -> None:
        super().__init__(study, console)
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._current: dict[int, tuple[str, TrialNote | None, float]] = {}
        self._rungs: dict[int, list[RungMeasurement]] = {}
        self._best = self._best_of(self._arms())

    def __enter__(self) -> Self:
        super().__enter__()
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def started(self, job: Job, order: TrialOrder) -> None:
        """Put the launch on the panel."""
        self._in_flight += 1
        what = order.hypothesis or job.kind
        text = f"{job.phase} · {what} · {job.reason or self._what(order.values)}"
        self._current[order.number] = (text, None, time.monotonic())
        self._rungs[order.number] = []

    def note(self, note: TrialNote) -> None:
        """Update where the launch is."""
        text, _, begun = self._current.get(note.number, ("", None, time.monotonic()))
        self._current[note.number] = (text, note, begun)
        if (note.rung is not None and note.rung.void) or note.again:
            super().note(note)
        elif note.rung is not None:
            self._rungs.setdefault(note.number, []).append(note.rung)

    def ended(self, record: TrialRecord, records: Sequence[TrialRecord]) -> None:
        """Take the launch off the panel and leave its line."""
        self._current.pop(record.number, None)
        super().ended(record, records)
        self._best = self._best_of(self._arms())  # not at each tick: a load runs beside it

    def tick(self, clock: BudgetClock) -> None:
        """Redraw."""
        self._live.update(Panel(Group(*self._trials(), Text(self._best), self._left(clock))))

    def _trials(self) -> list[Table]:
        return [self._trial(number) for number in self._current]

    def _trial(self, number: int) -> Table:
        text, note, begun = self._current[number]
        where = "starting" if note is None else note.phase
        if note is not None and note.at is not None:
            where = f"rung {note.at}{', again' if note.again else ''}"
        table = Table.grid(padding=(0, 2))
        table.add_row(f"trial {number}", where, f"{time.monotonic() - begun:.0f} s", Text(text))
        done = [
            f"{r.said}: {throughput(r, self._study.objective):.4g}"
            for r in self._rungs.get(number, [])
        ]
        table.add_row("", self._unit, "", "  ".join(done) or "-")
        return table

    def _best_of(self, arms: Arms) -> str:
        """The fastest launch that could be chosen: right output, all limits kept."""
        objective = arms.objective
        fit = (
            record
            for record in arms.records
            if record.kind != "baseline"
            and record.outcome == "completed"
            and not slo_breaches(record.rungs, objective)
        )
        values = ((score(record.rungs, arms.reference, objective), record) for record in fit)
        scored = [(value, record) for value, record in values if value is not None]
        if not scored:
            return "best so far: the baseline"
        value, record = max(scored, key=lambda pair: pair[0])
        what = self._what(record.values)
        what += ", extrapolated" if record.replicas.extrapolated else ""
        return f"best single launch so far: {value - 1:+.1%} in trial {record.number} ({what})"

    def _left(self, clock: BudgetClock) -> Text:
        launches = clock.launches_left(self._records, len(self._current))
        if launches is None:
            return Text("the budget has no limit")
        left = timedelta(seconds=int(launches * clock.launch_s / clock.hosts))
        said = f" · REHEARSAL at {time_scale(self._study):g}x" if rehearsal(self._study) else ""
        return Text(f"{launches} launches left, about {left}{said}")
