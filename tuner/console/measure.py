"""A measured server for people: one page, and how far it is while it is measured."""

import sys
from collections.abc import Callable
from typing import Self

from rich.table import Table
from rich.text import Text

from tuner.console.terminal import one_line, terminal
from tuner.definitions.models import Objective
from tuner.measuring.measurement import Distribution
from tuner.verbs.measure import Measured, MeasuredRung
from tuner.verbs.servers import Found
from tuner.views.machine import known_rows
from tuner.views.words import PER_USER, number, plain


def progress() -> "Progress":
    """What is heard while it is measured, on stderr."""
    return Progress(live=sys.stderr.isatty())


class Progress:
    """A line a rung; on a terminal one that counts down.

    Written by hand: redrawing a panel would take milliseconds of the thread that keeps the time.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._ladder: list[str] = []
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def found(self, server: Found, objective: Objective) -> None:
        """Say what will be played, and how long it takes."""
        self._ladder = [rung.said for rung in objective.ladder]
        seconds = len(self._ladder) * (objective.warmup_s + objective.window_s)
        kind = "rates" if objective.by_rate else "streams"
        ladder = ", ".join(self._ladder)
        self._say(
            f"{plain(server.target.base_url)}: {plain(server.target.model) or 'a model'}, "
            f"{server.target.api}; {kind} {ladder}; about {seconds:.0f} s"
        )

    def started(self, rung: int, seconds: float) -> None:
        """Name the rung."""
        self._redraw(f"{self._where(rung)}: warming up, {seconds:.0f} s to go")

    def window(self, rung: int, seconds_left: float) -> None:
        """Count down."""
        self._redraw(f"{self._where(rung)}: measuring, {seconds_left:.0f} s to go")

    def again(self, rung: int) -> None:
        """Say that it is measured once more."""
        self._say(f"at {self._ladder[rung]}: measured once more")

    def ended(self, rung: MeasuredRung) -> None:
        """Leave a line with the rung's numbers."""
        m = rung.measurement
        failed = f", {m.requests_failed} failed" if m.requests_failed else ""
        why = ", ".join(dict.fromkeys(doubt.rule for doubt in rung.doubts if doubt.voids))
        invalid = f", INVALID ({why})" if why else ""
        self._say(
            f"at {m.said}: {_number(m.output_tok_s)} tok/s, TTFT {_pair(m.ttft_ms)} ms"
            f"{failed}{invalid}"
        )

    def _where(self, rung: int) -> str:
        return f"at {self._ladder[rung]} ({rung + 1} of {len(self._ladder)})"

    def _redraw(self, text: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False

    def _say(self, text: str) -> None:
        self._clear()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def show_measured(result: Measured) -> None:
    """What was measured, on what, rung by rung, and whether to believe it."""
    out = terminal()
    if result.rehearsal:
        said = "REHEARSAL: numbers in real time, which runs faster there; not a benchmark"
        out.print(Text(said, style="yellow"))
    out.print(*_about(result), sep="\n", soft_wrap=True)
    if result.rungs:
        out.print(_table(result))
        out.print(PER_USER, soft_wrap=True)
    for rung in result.rungs:
        for breach in rung.breaches:
            out.print(Text(f"breaks {plain(breach)}", style="red"))
    for note in result.notes:
        out.print(Text(f"note: {one_line(note, 400)}"), soft_wrap=True)
    if result.valid:
        out.print(Text("VALID", style="bold green"))
        return
    out.print(Text("INVALID", style="bold red"))
    for reason in result.reasons:
        out.print(Text(f"  {one_line(reason, 400)}"), soft_wrap=True)


def _about(result: Measured) -> list[str]:
    engine = " ".join(filter(None, (result.engine or "an unnamed engine", result.version)))
    return [
        f"{plain(result.url)}: {plain(engine)}, {plain(result.model) or 'a model'}, {result.api}",
        f"{result.input_tokens} tokens in, {result.output_tokens} out, {result.workload.known}; "
        f"{result.warmup_s:g} s of warm-up, a window of {result.window_s:g} s",
    ]


def _table(result: Measured) -> Table:
    open_loop = any(rung.measurement.open_load is not None for rung in result.rungs)
    table = Table("rate" if open_loop else "streams", box=None, show_edge=False)
    for rung in result.rungs:
        table.add_column(rung.measurement.said, justify="right", no_wrap=True)
    for name, cell in _ROWS:
        table.add_row(name, *(cell(rung) for rung in result.rungs))
    for name, cell in _WHERE_KNOWN:
        cells = [cell(rung) for rung in result.rungs]
        if any(said != "-" for said in cells):
            table.add_row(name, *cells)
    for name, cells in known_rows([rung.measurement for rung in result.rungs]):
        table.add_row(name, *cells)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _pair(found: Distribution | None) -> str:
    return "-" if found is None else f"{_number(found.p50)} / {_number(found.p99)}"


def _load(rung: MeasuredRung) -> str:
    load = rung.measurement.engine_load
    return "-" if load is None else f"{_number(load.running_mean)} / {_number(load.queued_mean)}"


def _offered(rung: MeasuredRung) -> str:
    load = rung.measurement.open_load
    return "-" if load is None else f"{_number(load.due_rps)} / {_number(load.answered_rps)}"


def _late(rung: MeasuredRung) -> str:
    load = rung.measurement.open_load
    return "-" if load is None else f"{_number(load.late_ms)} / {_number(load.late_p99_ms)}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


_ROWS: tuple[tuple[str, Callable[[MeasuredRung], str]], ...] = (
    ("output tok/s", lambda rung: _number(rung.measurement.output_tok_s)),
    ("total tok/s", lambda rung: _number(rung.measurement.total_tok_s)),
    ("tok/s a user", lambda rung: _number(rung.measurement.tok_s_per_user)),
    ("TTFT ms p50 / p99", lambda rung: _pair(rung.measurement.ttft_ms)),
    ("TPOT ms p50 / p99", lambda rung: _pair(rung.measurement.tpot_ms)),
    ("ITL ms p50 / p99", lambda rung: _pair(rung.measurement.itl_ms)),
    ("E2E ms p50 / p99", lambda rung: _pair(rung.measurement.e2e_ms)),
    ("running / queued", _load),
    ("requests", lambda rung: str(rung.measurement.requests_completed)),
    ("errors", lambda rung: str(rung.measurement.requests_failed)),
    ("instrument lag ms p50 / p99", lambda rung: _pair(rung.measurement.instrument_lag_ms)),
    ("client's core", lambda rung: _share(rung.observed.cpu_share)),
)
_WHERE_KNOWN: tuple[tuple[str, Callable[[MeasuredRung], str]], ...] = (
    ("goodput req/s", lambda rung: _number(rung.measurement.goodput_rps)),
    ("offered / answered req/s", _offered),
    ("sent late ms mean / p99", _late),
)
