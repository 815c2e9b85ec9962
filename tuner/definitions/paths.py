"""Paths as people give them: what is wrong with one is a sentence, not an exception."""

import os
import stat
from pathlib import Path

from tuner.definitions.nearest import nearest
from tuner.errors import DefinitionError, Problem

STUDY_FILE = "study.yaml"

NO_FILE = "no such file"
NOT_THERE = "does not exist"


def fault(path: Path, kind: str = "a YAML file") -> str:
    """What keeps a path from being read as a file of this kind; empty where nothing is seen to."""
    try:
        what = path.stat().st_mode
        if stat.S_ISREG(what):
            return ""
    except FileNotFoundError:
        return _missing(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError:
        return "not a path that a file can have"
    found = "a folder" if stat.S_ISDIR(what) else "not a regular file"
    return f"found {found}, expected {kind}"


def _missing(path: Path) -> str:
    try:
        return f"found a link to {path.readlink()}, which does not exist"
    except OSError:
        return NO_FILE


def absence(path: Path) -> str:
    """Why nothing can be had at a path, file or folder; empty where something is there."""
    try:
        path.stat()
    except FileNotFoundError:
        return NOT_THERE
    except OSError as error:
        return f"cannot be reached ({(error.strerror or str(error)).lower()})"
    except ValueError:
        return "is not a path that a file can have"
    return ""


def study_file(path: Path) -> Path:
    """The study file that a person means by a folder or a file. Raises DefinitionError."""
    is_folder = _is_folder(path)
    file = path / STUDY_FILE if is_folder else path
    message = fault(file)
    if not message:
        return file
    where, hint = file, ""
    if message == NO_FILE:
        where, hint = path, _near(path)
        message = f"no {STUDY_FILE} in this folder" if is_folder else "no such study"
    raise DefinitionError([Problem(where=str(where), path="", message=message, hint=hint)])


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _near(path: Path) -> str:
    near = _studies_near(path)
    likely = nearest(str(path), near)
    names = [likely] if likely else near
    return f"studies near: {', '.join(names)}" if names else "no studies near either"


def _studies_near(path: Path) -> list[str]:
    folders = [path, path.parent, path.parent / "studies"]
    found = (file.parent for folder in folders for file in sorted(folder.glob(f"*/{STUDY_FILE}")))
    return list(dict.fromkeys(os.path.normpath(folder) for folder in found))
