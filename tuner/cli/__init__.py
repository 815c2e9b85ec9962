"""What people type."""

from tuner.cli import compare, doctor, explain, init, measure, report, studies
from tuner.cli.app import cli, main

__all__ = ["cli", "compare", "doctor", "explain", "init", "main", "measure", "report", "studies"]
