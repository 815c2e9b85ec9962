"""A failure for people: what it was, where the log shows it, what to do."""

from rich.text import Text

from tuner.console.terminal import terminal
from tuner.verbs.explain import HEALTHY, Explanation, NumberedLine
from tuner.views.words import plain

ACTIONS = {
    "never": "never launch these flags again as they are",
    "once": "launch the same once more; never after a second time",
    "stop-study": "launch nothing before the host or the files are mended",
}
_UNTOLD = "its engine cannot be told from it: say --engine"
_NAMES = {"sglang": "SGLang", "vllm": "vLLM", "rehearsal": "a rehearsal"}


def show_explanation(found: Explanation) -> None:
    """Class, cause, blame, action, advice, and the lines around the cause."""
    out = terminal()
    if found.kind == HEALTHY:
        out.print(*_healthy(found), sep="\n")
    else:
        out.print(*_failed(found), sep="\n")
    if found.cut_off:
        out.print("  note    the packed file is cut off: what came after its end was not read")
    out.print("")
    for line in found.context:
        out.print(_numbered(line, line.number == found.line, out.width), soft_wrap=True)


def _failed(found: Explanation) -> list[Text | str]:
    where = f"{plain(found.log)}:{found.line}" if found.line else plain(found.log)
    ended = "" if found.exit_code is None else f", exit code {found.exit_code}"
    blamed = ", ".join(_dashed(name) for name in found.blame) or "nothing by name"
    return [
        Text(f"{found.kind}: {plain(found.cause or '')}", style="bold red"),
        f"  at      {where}, {_engine(found)}, while {found.phase}{ended}",
        f"  blamed  {plain(blamed)}",
        f"  action  {found.action}: {ACTIONS[found.action or 'once']}",
        f"  advice  {plain(found.advice or '')}",
    ]


def _healthy(found: Explanation) -> list[Text | str]:
    said: list[Text | str] = [
        Text(f"no failure: nothing in {plain(found.log)} explains a death", style="green"),
        f"  it is {_engine(found)}, and ends while {found.phase}"
        if found.engine
        else f"  {_UNTOLD}",
    ]
    if found.exit_code is None:
        said.append("  if its server ended by itself, say so with --exit-code N")
    return said


def _engine(found: Explanation) -> str:
    if found.engine is None:
        return _UNTOLD
    guessed = " by the look of it" if found.guessed else ""
    return f"a log of {_NAMES[found.engine]}{guessed}"


def _dashed(name: str) -> str:
    return name if name.isupper() else f"--{name}"


def _numbered(line: NumberedLine, marked: bool, width: int) -> Text:
    text = f"{'>' if marked else ' '} {line.number:6d}  {plain(line.text)}"
    shown = text if len(text) <= width else f"{text[: width - 2]} …"
    return Text(shown, style="bold" if marked else "dim")
