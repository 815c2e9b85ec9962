"""The verbs of a study: check, plan, run, show, pareto, export."""

import sys
from pathlib import Path
from typing import Any

import click

from tuner.cli.app import EXIT_NOTHING_FEASIBLE, JSON, SCHEMA, STUDY, answer, cli


@cli.command()
@STUDY
@JSON
def check(study: Path, as_json: bool) -> None:
    """Read the study and say every fault; start nothing."""
    from tuner.console import show as console
    from tuner.verbs import inspect

    result = inspect.check(study)
    answer(result, as_json, console.show_check)


@cli.command()
@STUDY
@JSON
def plan(study: Path, as_json: bool) -> None:
    """The night on paper: launches in order, commands, minutes, what the budget drops."""
    from tuner.console import show as console
    from tuner.verbs import inspect

    answer(inspect.plan(study), as_json, console.show_plan)


@cli.command()
@STUDY
@JSON
def run(study: Path, as_json: bool) -> None:
    """Start the study, or continue it where its records end."""
    from tuner.console import show as console
    from tuner.console.progress import progress
    from tuner.verbs.run import run as run_study

    result = run_study(study, progress)
    answer(result, as_json, console.show_study)
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
        answer(inspect.show_trial(study, trial), as_json, console.show_trial)
    else:
        answer(inspect.show(study), as_json, console.show_study)


@cli.command()
@STUDY
@click.option("--x", default="tok_s_per_user", show_default=True, metavar="METRIC[@N]")
@click.option("--y", default="tok_s_per_gpu", show_default=True, metavar="METRIC[@N]")
@JSON
def pareto(study: Path, x: str, y: str, as_json: bool) -> None:
    """The configurations that no other beats in both metrics, such as ttft_ms.p99@10."""
    from tuner.console import front
    from tuner.verbs import inspect

    answer(inspect.pareto(study, x, y), as_json, front.show_front)


@cli.command()
@STUDY
@click.option("--trial", type=int, help="This trial's command instead of the winner's.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["shell", "docker", "compose", "systemd", "k8s", "yaml", "json"]),
    default="shell",
    show_default=True,
    help="yaml is a file for the engine's --config.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write it to this file.")
@SCHEMA
def export(study: Path, trial: int | None, form: Any, output: Path | None) -> None:
    """The launch command of the winner; of the baseline where nothing beats it."""
    from tuner.verbs import inspect
    from tuner.views.files import write_whole

    text = inspect.export(study, trial, form)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(output, text)
