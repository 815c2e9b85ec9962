"""The verb measure."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tuner.cli.app import EXIT_INTERRUPTED, EXIT_INVALID, JSON, answer, cli


def _levels(kind: type[int] | type[float]) -> Callable[..., tuple[float, ...]]:
    """Reads numbers above zero with commas between them."""

    def read(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
        if not text:
            return ()
        try:
            levels = tuple(kind(word) for word in text.split(","))
        except ValueError:
            levels = ()
        if not levels or not all(0 < level < math.inf for level in levels):
            whole = "whole " if kind is int else ""
            raise click.BadParameter(
                f"found {text!r}, expected {whole}numbers above 0 such as 1,10,64"
            )
        return levels

    return read


@cli.command()
@click.argument("url")
@click.option(
    "--objective",
    type=click.Path(path_type=Path),
    help="The load to play; a ladder of 1, 10, 64 where not given.",
)
@click.option(
    "--concurrency",
    metavar="N,N,...",
    default="",
    callback=_levels(int),
    help="Streams at a time, one rung each: a ladder in place of the objective's.",
)
@click.option(
    "--request-rate",
    metavar="N,N,...",
    default="",
    callback=_levels(float),
    help="Requests a second, one rung each, whoever waits: a ladder in place of the objective's.",
)
@click.option("--input-tokens", type=click.IntRange(min=1), help="Of every prompt.")
@click.option("--output-tokens", type=click.IntRange(min=2), help="Of every answer.")
@click.option(
    "--window",
    "window_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="How long each rung is measured, after its warm-up.",
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
    concurrency: tuple[int, ...],
    request_rate: tuple[float, ...],
    input_tokens: int | None,
    output_tokens: int | None,
    window_s: float | None,
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
    from tuner.verbs.asked import Options
    from tuner.verbs.measure import measure_server

    options = Options(
        concurrency=concurrency,
        request_rate=request_rate,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        window_s=window_s,
    )

    try:
        with console.progress() as listener:
            result = measure_server(
                url,
                objective,
                listener,
                options=options,
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
