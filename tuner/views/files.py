"""Files that are written for people: whole, or not at all."""

import os
import tempfile
from pathlib import Path

from tuner.errors import TunerError


def write_whole(path: Path, text: str) -> None:
    """Put the text in place of whatever is there, in one step.

    Raises TunerError where it cannot be written; what was there then stays.
    """
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        new = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.chmod(0o666 & ~_umask())
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise TunerError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="Nothing was changed. Name another place with --output.",
        ) from error


def _umask() -> int:
    """What files of this process are made without; it can only be asked by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
