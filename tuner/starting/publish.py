"""A folder that appears whole or not at all, and never over another."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.definitions.paths import STUDY_FILE
from tuner.errors import StudyError


def refuse_existing(folder: Path) -> None:
    """Raise StudyError where something is there already, or cannot be."""
    try:
        _refuse_existing(folder)
    except OSError as error:
        raise _failed(folder, error) from None


def _refuse_existing(folder: Path) -> None:
    if (folder / STUDY_FILE).exists():
        raise StudyError(
            f"{folder}: there is a study already",
            hint="Nothing was written. Choose another name, or remove it.",
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StudyError(
            f"{folder}: is there already, and no empty folder",
            hint="Nothing was written. Choose another name.",
        )


def publish(folder: Path, files: Mapping[str, str], check: Callable[[Path], object]) -> None:
    """Write the files where `check` accepts them, given a folder beside the real one.

    Raises StudyError where something is there already or cannot be written, and what `check`
    raises; nothing is left behind then.
    """
    refuse_existing(folder)
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        _remove_empty(made)
        raise _unwritable(folder, error) from None
    try:
        for name, text in files.items():
            (beside / name).write_text(text, encoding="utf-8")
        check(beside)
        beside.chmod(0o755)
        beside.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        _remove_empty(made)


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _unwritable(folder: Path, error: OSError) -> StudyError:
    refuse_existing(folder)
    return _failed(folder, error)


def _failed(folder: Path, error: OSError) -> StudyError:
    return StudyError(f"{folder}: cannot be written: {error.strerror or error}")
