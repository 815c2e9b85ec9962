"""The verb explain."""

from typing import Any

import click

from tuner.cli.app import JSON, answer, cli


@cli.command()
@click.argument("logfile")
@click.option(
    "--engine",
    type=click.Choice(["sglang", "vllm", "rehearsal"]),
    help="Whose log it is; told from the log where not given.",
)
@click.option("--exit-code", type=int, metavar="N", help="The server ended by itself, with this.")
@click.option(
    "--phase",
    type=click.Choice(["starting", "loading", "capturing", "ready", "serving", "stopping"]),
    help="How far the server had come, where the log does not show it.",
)
@JSON
def explain(logfile: str, engine: Any, exit_code: int | None, phase: Any, as_json: bool) -> None:
    """Why a server died: the first cause in its LOGFILE, and what to do.

    LOGFILE may be any server's log, packed by gzip too; - reads standard input.
    """
    from tuner.console import explain as console
    from tuner.verbs import explain as verbs

    result = verbs.explain(logfile, engine=engine, exit_code=exit_code, phase=phase)
    answer(result, as_json, console.show_explanation)
