"""What people type."""

from tuner.cli import compare, explain, init, measure, report, studies
from tuner.cli.app import cli, main

__all__ = ["cli", "compare", "explain", "init", "main", "measure", "report", "studies"]
