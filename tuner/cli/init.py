"""The verb that begins: a study from the launch command that one has."""

import sys
from pathlib import Path

import click

from tuner.cli.app import JSON, answer, cli

FILE = click.Path(path_type=Path)


@cli.command()
@click.argument("name", type=FILE)
@click.option(
    "--from",
    "launch",
    metavar="LAUNCH",
    help="A command in quotes, a script, compose file or manifest, or - for standard input.",
)
@click.option("--engine", type=click.Choice(["sglang", "vllm"]), help="Without a launch: this one.")
@click.option("--model", help="Without a launch: the model to serve.")
@click.option("--service", help="Which service or container, where several are engines.")
@click.option("--engine-version", metavar="VERSION", help="Where it cannot be asked here.")
@click.option("--space", type=FILE, help="A space of your own.")
@click.option("--objective", type=FILE, help="An objective of your own.")
@JSON
def init(
    name: Path,
    launch: str | None,
    engine: str | None,
    model: str | None,
    service: str | None,
    engine_version: str | None,
    space: Path | None,
    objective: Path | None,
    as_json: bool,
) -> None:
    """Write a new study, NAME, from the launch command that you have."""
    from tuner.console.init import show_started
    from tuner.starting.drafting import Asked
    from tuner.verbs import init as verb

    if (launch is None) == (engine is None or model is None):
        raise click.UsageError("give --from LAUNCH, or --engine and --model")
    started = verb.init(
        name,
        launch if launch is not None else verb.words_of(engine or "", model or ""),
        sys.stdin,
        service=service,
        asked=Asked(version=engine_version, space=space, objective=objective),
    )
    answer(started, as_json, show_started)
