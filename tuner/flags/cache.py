"""What engines said of their flags, kept between runs; nothing is lost with it but time."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from pydantic import ValidationError

from tuner.flags.catalogue import Catalogue


def folder() -> Path:
    """`$XDG_CACHE_HOME/serving-tuner/flags`, below `~/.cache` where nothing is set."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "serving-tuner" / "flags"


def kept(*identity: str) -> Catalogue | None:
    """The catalogue that was kept under these words; None where there is none, or none whole."""
    try:
        return Catalogue.model_validate_json(_path(identity).read_bytes())
    except (OSError, ValidationError):
        return None


def keep(catalogue: Catalogue, *identity: str) -> None:
    """Keep a catalogue, whole or not at all; without a place to keep it nothing happens."""
    path = _path(identity)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            new = Path(file.name)
            try:
                file.write(catalogue.model_dump_json(exclude_defaults=True))
                file.close()
                new.replace(path)
            except OSError:
                new.unlink(missing_ok=True)
                raise


def _path(identity: tuple[str, ...]) -> Path:
    name = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:24]
    return folder() / f"{name}.json"
