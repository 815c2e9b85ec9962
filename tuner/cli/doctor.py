"""The verb doctor."""

import sys
from pathlib import Path

import click

from tuner.cli.app import JSON, answer, cli
from tuner.errors import TunerError


@cli.command()
@click.argument("study", type=click.Path(path_type=Path), required=False)
@JSON
def doctor(study: Path | None, as_json: bool) -> None:
    """Is this machine fit for a night, and STUDY ready to run on it?

    Each check says what was found and the command that mends it. What dead runs left is removed.
    """
    from tuner.console import doctor as console
    from tuner.verbs.doctor import examine

    result = examine(study)
    answer(result, as_json, console.show_diagnosis)
    if not result.ready:
        sys.exit(TunerError.exit_code)
