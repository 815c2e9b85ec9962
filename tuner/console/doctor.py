"""A diagnosis for people: what fails first, with what mends it, and one line at the end."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from tuner.console.terminal import terminal
from tuner.definitions.counted import counted
from tuner.hosts.questions import Check
from tuner.verbs.doctor import Diagnosis
from tuner.views.words import plain

_STYLE = {"fail": "bold red", "warn": "yellow", "unknown": "cyan", "ok": "green"}


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """A row a check, below it the command that mends it."""
    out = terminal()
    table = Table(box=None, show_edge=False, show_header=False)
    table.add_column(no_wrap=True, vertical="top")
    table.add_column(no_wrap=True, vertical="top")
    table.add_column(overflow="fold")
    for check in diagnosis.checks:
        state = Text(check.state, style=_STYLE[check.state])
        table.add_row(state, check.name, _found(check))
    out.print(table)
    style = "bold green" if diagnosis.ready else "bold red"
    out.print(Text(_end(diagnosis), style=style), soft_wrap=True)


def _found(check: Check) -> Text:
    text = Text(plain(check.found))
    if check.mend and check.state != "ok":
        text.append(f"\n-> {plain(check.mend)}", style="dim")
    return text


def _end(diagnosis: Diagnosis) -> str:
    what = plain(f"{diagnosis.study} on {diagnosis.host}" if diagnosis.study else diagnosis.host)
    failed, warned = (_count(diagnosis.checks, state) for state in ("fail", "warn"))
    if failed:
        return f"{what}: {_said(failed, 'fails', 'fail')}, mend it before the night."
    if warned:
        return f"{what}: nothing fails; {_said(warned, 'warns', 'warn')}."
    return f"{what}: {len(diagnosis.checks)} checks, nothing fails."


def _count(checks: Sequence[Check], state: str) -> int:
    return sum(1 for check in checks if check.state == state)


def _said(count: int, one: str, many: str) -> str:
    return f"{counted(count, 'check')} {one if count == 1 else many}"
