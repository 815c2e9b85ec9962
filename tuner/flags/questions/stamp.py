"""Which version of an engine is installed, and a number that changes with any of its files.

    python -c SCRIPT PACKAGE DISTRIBUTION...

Prints one line of JSON: null where the package is not there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterable


def version_of(distributions: Iterable[str]) -> str | None:
    """The version under the first of these names that is installed."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def stamp(folder: str) -> str:
    """The newest change below a folder, in nanoseconds, and how many source files there are."""
    newest = count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".py", ".so")):
                count += 1
                newest = max(newest, os.stat(os.path.join(place, name)).st_mtime_ns)  # noqa: PTH116, PTH118
    return f"{newest}.{count}"


def answer(package: str, distributions: Iterable[str]) -> dict[str, str | None] | None:
    """Version, stamp and folder; None where the package is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = next(iter(spec.submodule_search_locations))
    return {"version": version_of(distributions), "stamp": stamp(folder), "folder": folder}


if __name__ == "__main__":
    print(json.dumps(answer(sys.argv[1], sys.argv[2:])))
