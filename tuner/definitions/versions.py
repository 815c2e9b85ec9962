"""Which versions of an engine a specifier admits; the only user of packaging.

A version counts as the release that it leads to: a build between two releases (0.5.18.dev3, rc1)
has the flags of the later one, and a local label (+cu130) changes none.
"""

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


def is_version(text: str) -> bool:
    """Whether the text is a version such as 0.5.17 or 0.32.0+cpu."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def is_specifier(text: str) -> bool:
    """Whether the text is a specifier (PEP 440) such as `>=0.5.17` or `>=0.5,<0.6`."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return bool(text.strip())


def admits(specifier: str | None, version: str | None) -> bool:
    """Whether the version is among those of the specifier; true where either is unknown."""
    if specifier is None or version is None:
        return True
    return SpecifierSet(specifier).contains(_release(version), prereleases=True)


def alike(left: str, right: str) -> bool:
    """Whether two versions are one to every specifier."""
    return _release(left) == _release(right)


def _release(text: str) -> Version:
    version = Version(text)
    post = "" if version.post is None else f".post{version.post}"
    return Version(f"{version.base_version}{post}")
