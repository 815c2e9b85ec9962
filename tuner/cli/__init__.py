"""What people type."""

from tuner.cli import explain, studies
from tuner.cli.app import cli, main

__all__ = ["cli", "explain", "main", "studies"]
