"""The verb measure."""

import sys
from pathlib import Path
from typing import Any

import click

from tuner.cli.app import EXIT_INTERRUPTED, EXIT_INVALID, JSON, answer, cli


@cli.command()
@click.argument("url")
@click.option(
    "--objective",
    type=click.Path(path_type=Path),
    help="The load to play; a ladder of 1, 10, 64 where not given.",
)
@click.option(
    "--api",
    type=click.Choice(["completions", "chat", "generate"]),
    help="How to ask: OpenAI's /v1/completions or /v1/chat/completions, or SGLang's /generate; "
    "found out where neither it nor the objective says.",
)
@click.option("--model", help="The model to ask for; the first of /v1/models where not given.")
@click.option(
    "--engine",
    type=click.Choice(["sglang", "vllm", "rehearsal"]),
    help="Whose metrics to read; found out where not given.",
)
@click.option(
    "--gpus", type=click.IntRange(min=1), default=1, help="GPUs of the server, for rates."
)
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the API key.")
@JSON
def measure(
    url: str,
    objective: Path | None,
    api: Any,
    model: str | None,
    engine: Any,
    gpus: int,
    api_key_env: str | None,
    as_json: bool,
) -> None:
    """Measure a server that runs already, at URL: throughput and latencies over a ladder.

    Ends with VALID, or with INVALID, the reasons, and exit code 5. Nothing is recorded.
    """
    from tuner.console import measure as console
    from tuner.verbs.measure import measure_server

    try:
        with console.progress() as listener:
            result = measure_server(
                url,
                objective,
                listener,
                api=api,
                model=model,
                engine=engine,
                gpus=gpus,
                key_variable=api_key_env,
            )
    except KeyboardInterrupt:
        click.echo("interrupted; nothing was measured yet", err=True)
        sys.exit(EXIT_INTERRUPTED)
    answer(result, as_json, console.show_measured)
    if result.ended == "interrupted":
        click.echo("interrupted; what is above was measured before", err=True)
        sys.exit(EXIT_INTERRUPTED)
    if not result.valid:
        sys.exit(EXIT_INVALID)
