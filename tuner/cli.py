"""What people type. Each verb loads what it needs when it is called: `tuner --help` is instant."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import click

import tuner
from tuner.errors import TunerError

EXIT_NOTHING_FEASIBLE = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

STUDY = click.argument("study", type=click.Path(path_type=Path))
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document to stdout.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tuner.__version__, prog_name="tuner")
def cli() -> None:
    """Find the fastest honest configuration of an LLM server, overnight, unattended.

    STUDY is a folder with a study.yaml, such as studies/quickstart.
    """


@cli.command()
@STUDY
@JSON
def check(study: Path, as_json: bool) -> None:
    """Read the study and say every fault; start nothing."""
    from tuner.console import show as console
    from tuner.verbs import inspect

    result = inspect.check(study)
    _answer(result, as_json, console.show_check)


@cli.command()
@STUDY
@JSON
def plan(study: Path, as_json: bool) -> None:
    """The night on paper: launches in order, commands, minutes, what the budget drops."""
    from tuner.console import show as console
    from tuner.verbs import inspect

    _answer(inspect.plan(study), as_json, console.show_plan)


@cli.command()
@STUDY
@JSON
def run(study: Path, as_json: bool) -> None:
    """Start the study, or continue it where its records end."""
    from tuner.console import show as console
    from tuner.console.progress import progress
    from tuner.verbs.run import run as run_study

    result = run_study(study, progress)
    _answer(result, as_json, console.show_study)
    if not result.feasible:
        sys.exit(EXIT_NOTHING_FEASIBLE)


@cli.command()
@STUDY
@click.argument("trial", type=int, required=False)
@JSON
def show(study: Path, trial: int | None, as_json: bool) -> None:
    """Verdicts, hypotheses and trials so far; or one TRIAL in full."""
    from tuner.console import show as console
    from tuner.verbs import inspect

    if trial is not None:
        _answer(inspect.show_trial(study, trial), as_json, console.show_trial)
    else:
        _answer(inspect.show(study), as_json, console.show_study)


@cli.command()
@STUDY
@click.option("--x", default="tok_s_per_user", show_default=True, metavar="METRIC[@N]")
@click.option("--y", default="tok_s_per_gpu", show_default=True, metavar="METRIC[@N]")
@JSON
def pareto(study: Path, x: str, y: str, as_json: bool) -> None:
    """The configurations that no other beats in both metrics, such as ttft_ms.p99@10."""
    from tuner.console import show as console
    from tuner.verbs import inspect

    _answer(inspect.pareto(study, x, y), as_json, console.show_front)


@cli.command()
@STUDY
@click.option("--trial", type=int, help="This trial's command instead of the winner's.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["shell", "json"]),
    default="shell",
    show_default=True,
)
def export(study: Path, trial: int | None, form: Any) -> None:
    """The launch command of the winner; of the baseline where nothing beats it."""
    from tuner.verbs import inspect

    click.echo(inspect.export(study, trial, form), nl=False)


def _answer(result: Any, as_json: bool, show_it: Callable[[Any], None]) -> None:
    if as_json:
        click.echo(result.model_dump_json(indent=1, by_alias=True))  # no NaN, unlike json.dumps
    else:
        show_it(result)


def main() -> NoReturn:
    """Run the command line; every expected failure is one message and an exit code."""
    sys.excepthook = _bug
    try:
        code = cli.main(prog_name="tuner", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # impatience must not change the exit code
        click.echo("interrupted; everything measured is recorded, run again to continue", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except TunerError as error:
        click.echo(f"tuner: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """What nobody foresaw: say what to send, and exit as no expected failure does."""
    traceback.print_exception(kind, error, trace)
    click.echo(
        "tuner: this is a bug. Please report it with the lines above and the version "
        f"({tuner.__version__}). What was measured is recorded.",
        err=True,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_BUG)
