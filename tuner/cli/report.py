"""The verb report."""

from pathlib import Path

import click

from tuner.cli.app import STUDY, cli


@cli.command()
@STUDY
@click.option("--output", type=click.Path(path_type=Path), help="Instead of STUDY/report.html.")
def report(study: Path, output: Path | None) -> None:
    """The whole study as one HTML page that needs no network."""
    from tuner.verbs.report import report as written

    click.echo(written(study, output))
