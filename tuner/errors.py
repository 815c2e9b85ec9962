"""Every error a user can cause, in one tree.

* TunerError
  * DefinitionError     a study, space, objective or surface file is wrong
  * SpaceError          values do not belong to the space
  * StudyError          the study folder cannot be used
    * StudyBusy           another run holds it
    * StudyChanged        what was measured before is not what would be measured now
    * RecordsError        records are damaged or from a newer version
  * EngineError         the engine cannot be used as the study says
  * HostError           the machine or cluster cannot do it
    * LaunchLost          a launch was ended from outside; the same may well succeed
      * PortTaken           somebody else took a port meanwhile; the next launch has others
  * MeasurementInvalid  what was measured is worth nothing, again and again
  * HttpError           a server did not answer as its protocol says
    * HttpUnreachable     nobody answered
    * HttpStatusError     it answered with an error status
    * HttpProtocolError   it answered with something that is not the protocol
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar


class TunerError(Exception):
    """What went wrong in one sentence, and in `hint` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are rebuilt from positional arguments alone, which keyword-only ones refuse.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[TunerError], args: tuple[Any, ...], state: dict[str, Any]) -> TunerError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def remedy(error: OSError) -> str:
    """What to do about a file that cannot be written, as the start of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Make room"
    if error.errno in (errno.EISDIR, errno.EEXIST, errno.ENOTDIR):
        return "Move away what is in its place"
    return "Give write access"


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Around nothing but the writing of a launch's files; `path` where the system names none.

    Raises HostError where they cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise HostError(
            f"{error.filename or path}: cannot be written: {error.strerror}",
            hint=f"{remedy(error)}, then run again: the study continues.",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault in a definition file; `where` is `file:line:col`."""

    where: str
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        subject = f"{self.path}: " if self.path else ""
        text = f"{self.where}: {subject}{self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


class DefinitionError(TunerError):
    """All faults found in the definition files, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class SpaceError(TunerError):
    """Values that the search space does not admit."""


class StudyError(TunerError):
    """The study folder cannot be used."""


class StudyBusy(StudyError):
    """Another run holds the study."""


class StudyChanged(StudyError):
    """What would be measured now differs from what the records hold."""


class RecordsError(StudyError):
    """The records are damaged or were written by a newer version."""


class EngineError(TunerError):
    """The engine cannot be used as the study says."""


class HostError(TunerError):
    """The machine or the cluster cannot do what the study needs."""

    exit_code = 4


class LaunchLost(HostError):
    """Something outside of a launch ended it: the same launch made again may well succeed."""


class PortTaken(LaunchLost):
    """Somebody else listens on a port that was free: the next launch gets others."""


class MeasurementInvalid(TunerError):
    """What was measured cannot be believed, and to measure again does not help."""

    exit_code = 5


class HttpError(TunerError):
    """A server did not answer as its protocol says."""


class HttpUnreachable(HttpError):
    """Nobody answered: refused, reset, timed out, or the name is unknown."""


class HttpStatusError(HttpError):
    """The server answered with an error status."""

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class HttpProtocolError(HttpError):
    """The server answered with something that is not the protocol."""
