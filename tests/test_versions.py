"""Which versions a specifier admits: releases, builds between releases, local labels."""

import pytest

from tuner.definitions.versions import admits, alike, is_specifier, is_version


@pytest.mark.parametrize(
    ("specifier", "version"),
    [
        (">=0.5.12", "0.5.17"),
        ("<0.5.12", "0.5.9"),
        ("<0.5.12", "0.5.11.post1"),
        (">=0.5.3.post1", "0.5.3.post2"),
        ("==0.5.17", "0.5.17+cu130"),
        ("<=0.32", "0.32.0+cpu"),
        # what leads to a release has its flags
        (">=0.5.18", "0.5.18.dev12+gabc"),
        (">=0.5.18", "0.5.18rc1"),
        (">=0.5,<0.6", "0.5.17"),
        (None, "0.5.17"),
        (">=0.5.12", None),
    ],
)
def test_it_admits(specifier, version):
    assert admits(specifier, version)


@pytest.mark.parametrize(
    ("specifier", "version"),
    [
        (">=0.5.12", "0.5.9"),  # numbers, not texts
        ("<0.5.18", "0.5.18.dev12"),
        ("<0.5.18", "0.5.18rc1"),
        ("==0.5.17", "0.5.17.post1"),
        (">=0.5.3.post2", "0.5.3.post1"),
        (">=0.5,<0.6", "0.6.0"),
    ],
)
def test_it_does_not_admit(specifier, version):
    assert not admits(specifier, version)


def test_a_version_is_below_or_not_below_another_whatever_kind_it_is():
    for version in ("0.5.17", "0.5.18", "0.5.18.dev1", "0.5.18rc1", "0.5.18.post1", "0.5.18+x"):
        assert admits("<0.5.18", version) is not admits(">=0.5.18", version)


def test_versions_are_alike_where_no_specifier_tells_them_apart():
    assert alike("0.32.0+cpu", "0.32")
    assert alike("0.5.18.dev3", "0.5.18")
    assert not alike("0.5.18.post1", "0.5.18")


@pytest.mark.parametrize("text", ["main", "", "latest", "0.5.x"])
def test_what_is_no_version(text):
    assert not is_version(text)


@pytest.mark.parametrize("text", ["", " ", "0.5.17", ">=", ">=0.5 <0.6", "=>0.5"])
def test_what_is_no_specifier(text):
    assert not is_specifier(text)


def test_versions_and_specifiers_are_those_of_python_packages():
    assert is_version("0.5.10rc0")
    assert is_specifier("~=0.5.10, !=0.5.11")
