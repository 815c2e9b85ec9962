"""Finds the fastest honest configuration of an LLM server, overnight, unattended."""

__version__ = "0.1.0"
