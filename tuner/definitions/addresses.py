"""The address of a Ray cluster as a study gives it."""

import re

AUTO = "auto"
"""The cluster that runs on this machine, wherever it listens."""

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):(?P<port>[0-9]{1,5})")


def cluster_address(text: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT; None for any other text."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        return None
    return match["host"].strip("[]"), int(match["port"])
