"""What a person hears of a study that was just written."""

import shlex
from collections.abc import Iterator

from tuner.console.terminal import terminal
from tuner.definitions.counted import counted
from tuner.verbs.init import Started
from tuner.views.words import plain


def show_started(started: Started) -> None:
    """Where it is, what was placed where, what was left out, what to do next."""
    console = terminal()

    def say(text: str) -> None:
        console.print(plain(text), soft_wrap=True)

    gpus = counted(started.gpus, "GPU")
    say(f"{started.study}/study.yaml: {started.engine}, {started.model}, {gpus}")
    say(f"  baseline: {', '.join(started.baseline) or 'nothing that the space searches'}")
    say(f"  fixed:    {', '.join(started.fixed) or 'nothing'}")
    if started.serve:
        say(f"  serve:    {', '.join(_served(started))}")
    say(f"  space:    {started.space}, objective {started.objective}{_copied(started)}")
    if started.secrets:
        say(f"  set before a run: {', '.join(started.secrets)}")
    if started.added:
        say(f"  beyond it, the space's defaults: {', '.join(started.added)}")
    if started.left_out:
        say("not in it:")
        for text in started.left_out:
            say(f"  - {text}")
    study = shlex.quote(started.study)
    say(f"next: tuner check {study}, then tuner plan {study}")


def _served(started: Started) -> Iterator[str]:
    for name, value in started.serve.items():
        yield f"{name} {', '.join(value) if isinstance(value, list) else value}"


def _copied(started: Started) -> str:
    return " (copies of the shipped ones: the folder stands alone)" if started.copied else ""
