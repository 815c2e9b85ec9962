"""The verb compare."""

from pathlib import Path

import click

from tuner.cli.app import JSON, STUDY, answer, cli


@cli.command()
@STUDY
@click.argument("a")
@click.argument("b", required=False)
@JSON
def compare(study: Path, a: str, b: str | None, as_json: bool) -> None:
    """B over A: which is faster where, how surely, and how they differ.

    A and B are trials by number, or configurations: baseline, winner, the id of a hypothesis, or
    changes as show has them. With one more STUDY in place of both: its winner over this one's.
    """
    from tuner.console.compare import show_comparison
    from tuner.verbs.compare import compare as compared

    answer(compared(study, a, b), as_json, show_comparison)
