"""What people type."""

from tuner.cli import compare, explain, init, measure, studies
from tuner.cli.app import cli, main

__all__ = ["cli", "compare", "explain", "init", "main", "measure", "studies"]
