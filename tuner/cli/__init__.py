"""What people type."""

from tuner.cli import studies
from tuner.cli.app import cli, main

__all__ = ["cli", "main", "studies"]
