"""The command line itself: the group that commands join, how they answer, how a run of it ends.

Each verb loads what it needs when it is called: `tuner --help` is instant.
"""

import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import click

import tuner
from tuner.errors import TunerError, remedy

EXIT_NOTHING_FEASIBLE = 3
EXIT_INVALID = 5
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

Command = TypeVar("Command", bound=Callable[..., Any])

STUDY = click.argument("study", type=click.Path(path_type=Path))


def _print_schema(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Print the schema of the verb's document and end, whatever else was said or left out."""
    if not asked:
        return
    from tuner.verbs.schema import schema

    click.echo(json.dumps(schema(context.command.name or ""), indent=1))
    context.exit()


SCHEMA = click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of that document instead.",
)


def JSON(command: Command) -> Command:  # noqa: N802 - stands among decorators that are constants
    """A verb that answers takes `--json`, and says what that document looks like."""
    said = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document to stdout."
    )
    return said(SCHEMA(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tuner.__version__, prog_name="tuner")
def cli() -> None:
    """Find the fastest honest configuration of an LLM server, overnight, unattended.

    STUDY is a folder with a study.yaml, such as studies/quickstart.
    """


def answer(result: Any, as_json: bool, show_it: Callable[[Any], None]) -> None:
    """Print a result: for a program, or for a person."""
    if as_json:
        click.echo(result.model_dump_json(indent=1, by_alias=True))  # no NaN, unlike json.dumps
    else:
        show_it(result)


def main() -> NoReturn:
    """Run the command line; every expected failure is one message and an exit code."""
    sys.excepthook = _bug
    try:
        code = cli.main(prog_name="tuner", standalone_mode=False)
        sys.stdout.flush()
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
    except OSError as error:
        _full(error)
    sys.exit(code if isinstance(code, int) else 0)


def _full(error: OSError) -> NoReturn:
    """Where standard output goes there is no room: only it is written to without a name."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise error
    what = error.filename or "the answer"
    click.echo(f"tuner: {what} cannot be written: {error.strerror}\n  {remedy(error)}.", err=True)
    sys.stdout = sys.stderr  # what was not written would be tried again at the end
    sys.exit(1)


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
