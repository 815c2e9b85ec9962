"""Errors: one tree, a message and what to do, and they survive a process boundary."""

import errno
import os
import pickle

import pytest

from tuner import errors
from tuner.errors import (
    DefinitionError,
    HostError,
    HttpStatusError,
    MeasurementInvalid,
    PortTaken,
    Problem,
    TunerError,
    remedy,
)

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TunerError) and kind is not TunerError
]


def made(kind: type[TunerError]) -> TunerError:
    if kind is DefinitionError:
        return DefinitionError([Problem(where="a.yaml:1:2", path="x", message="m", hint="h")])
    if kind is HttpStatusError:
        return HttpStatusError("message", status=503, hint="hint")
    return kind("message", hint="hint")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_a_tuner_error_and_survives_pickling(kind):
    error = made(kind)
    assert isinstance(error, TunerError)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert back.args == error.args


def test_the_hint_stands_indented_below_the_message():
    assert str(TunerError("it broke", hint="mend it")) == "it broke\n  mend it"
    assert str(TunerError("it broke")) == "it broke"


def test_a_definition_error_says_all_problems_each_with_its_place_and_hint():
    error = DefinitionError(
        [
            Problem(where="a.yaml:1:2", path="space", message="missing"),
            Problem(where="b.yaml:3:4", path="", message="odd", hint="say less"),
        ]
    )
    assert str(error) == "a.yaml:1:2: space: missing\nb.yaml:3:4: odd\n  say less"
    assert len(error.problems) == 2


def test_exit_codes_tell_a_host_from_what_a_user_can_mend():
    assert HostError.exit_code == 4
    assert PortTaken.exit_code == 4
    assert MeasurementInvalid.exit_code == 5
    rest = [kind for kind in KINDS if not issubclass(kind, (HostError, MeasurementInvalid))]
    assert {kind.exit_code for kind in rest} == {1}


def test_the_tree_in_the_docstring_is_the_tree():
    drawn: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip().removeprefix("* ").split(" ")[0]
        if line.strip().startswith("*") and name != "TunerError":
            parent = getattr(errors, name).__mro__[1]
            depth = (len(line) - len(line.lstrip())) // 2
            assert depth == len(parent.__mro__) - len(TunerError.__mro__) + 1, name
            drawn.append(name)
    assert sorted(drawn) == sorted(kind.__name__ for kind in KINDS)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "Make room"),
        (errno.EDQUOT, "Make room"),
        (errno.EISDIR, "Move away what is in its place"),
        (errno.EACCES, "Give write access"),
        (errno.EROFS, "Give write access"),
    ],
)
def test_what_to_do_about_a_file_that_cannot_be_written(number, said):
    assert remedy(OSError(number, os.strerror(number))) == said
