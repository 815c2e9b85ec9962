"""Flags of some versions, recorded when this package was made: for machines without the engine.

    python -m tuner.flags.record sglang FOLDER

writes `recorded/sglang-VERSION.json` from a FOLDER that holds the package with its dist-info: the
site-packages of an environment, or an unpacked wheel, whose parser cannot be imported and which is
read as source. Only facts are kept: names, choices, defaults, what is read by nothing; no help
texts.
"""

import sys
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from tuner.flags.catalogue import Catalogue
from tuner.flags.probe import ask

_FOLDER = files("tuner.flags") / "recorded"


def recorded_versions(engine: str) -> list[str]:
    """The versions of an engine that were recorded."""
    names = sorted(entry.name for entry in _FOLDER.iterdir())
    begun = f"{engine}-"
    return [name[len(begun) : -len(".json")] for name in names if name.startswith(begun)]


@lru_cache(maxsize=8)
def recorded(engine: str, version: str) -> Catalogue | None:
    """The catalogue of a version as it was recorded; a local label such as +cu130 changes none."""
    plain = version.partition("+")[0]
    if plain not in recorded_versions(engine):
        return None
    text = (_FOLDER / f"{engine}-{plain}.json").read_text()
    return Catalogue.model_validate_json(text).model_copy(update={"how": "recorded"})


def record(engine: str, folder: Path) -> Path:
    """Write what the package in this folder declares; the file it was written to.

    Raises ValueError where there is no such package with its metadata.
    """
    catalogue = ask(
        (sys.executable,), {"PYTHONPATH": str(folder)}, engine=engine, distributions=(engine,)
    )
    if catalogue is None:
        raise ValueError(f"{folder}: expected a folder with {engine} and its dist-info")
    plain = catalogue.version.partition("+")[0]
    path = Path(str(_FOLDER)) / f"{engine}-{plain}.json"
    path.parent.mkdir(exist_ok=True)
    write(catalogue, path)
    return path


def write(catalogue: Catalogue, path: Path) -> None:
    """A catalogue as it is recorded: one flag a line, so that two versions can be compared."""
    path.write_text(
        catalogue.model_dump_json(exclude_defaults=True).replace('{"name"', '\n{"name"') + "\n"
    )


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
