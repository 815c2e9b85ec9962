"""Which declared names an installed package never reads, and which variables it knows.

    python -c SCRIPT PACKAGE NAMES-AS-JSON PREFIX...

A name counts as unread only where every mention of it is provably something else: its own
declaration, an assignment, a keyword, an entry of a list of all names, or a copy into a field of
the same name that is itself read by nothing. Whatever cannot be told is a read: to call a flag dead
that does something would be the worst mistake. A name that is put together at run time
(`getattr(args, f"{kind}_backend")`) reads all that it could become. Plugins that the engine would
load are looked through as well.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import mmap
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DOCUMENTS = frozenset({".md", ".rst", ".txt", ".pyc", ".ipynb", ".png", ".jpg", ".svg"})
"""Files that mention flags and read none."""
SHORTEST_PART = 4
"""Letters that the written part of a name put together must have to say anything."""
LONGEST_VARIABLE = 120

_WORD = re.compile(r"\w+")
_VARIABLE = re.compile(rb"[A-Z0-9_]*[A-Z0-9]")
_IN_A_WORD = re.compile(rb"[A-Za-z0-9_]")
_READS_ALL_FIELDS = re.compile(
    r"\b(asdict|astuple|fields|vars|replace|model_dump|to_dict)\(|__dict__"
)
"""Words beside a class by which its fields could be read without their names."""
_DOTTED = re.compile(r"[A-Za-z_][\w.-]*")
_TEMPLATE = re.compile(r"\{(\w+)[}!:.\[]|%\((\w+)\)")
_PUT_TOGETHER = (
    (re.compile(r"""[fFrR]{1,2}(["'])((?:\w|\{[^{}\n]*\})+)\1"""), r"\{[^{}]*\}"),
    (re.compile(r"""(["'])((?:\w|%s)+)\1\s*%"""), r"%s"),
    (re.compile(r"""(["'])((?:\w|\{\w*\})+)\1\s*\.format\("""), r"\{\w*\}"),
)
_PREFIX = (
    re.compile(r"""(["'])(\w+_)\1\s*\+"""),
    re.compile(r"""\.(?:startswith|removeprefix)\(\s*(["'])(\w+)\1"""),
)
_SUFFIX = (
    re.compile(r"""\+\s*(["'])(_\w+)\1"""),
    re.compile(r"""\.(?:endswith|removesuffix)\(\s*(["'])(\w+)\1"""),
)


def unread(roots: Iterable[Path], names: Iterable[str]) -> dict[str, str]:
    """Each name that nothing below these folders reads, with where it is declared."""
    names = set(names)
    mentions = _Mentions(names)
    sources, others = [], []
    for place, path in _files(roots):
        if path.suffix != ".py":
            others.append(path)
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        sources.append(text)
        if not mentions.left.isdisjoint(_WORD.findall(text)):
            mentions.look(place, text)
    left = mentions.settled()
    left -= {name for text in sources for name in _built(text, left)}
    for path in others:
        left -= _within(path, left)
    return {name: mentions.declared(name) for name in sorted(left)}


def variables(roots: Iterable[Path], prefixes: Iterable[str]) -> list[str]:
    """The environment variables with these prefixes that are mentioned below these folders."""
    found: set[str] = set()
    for _, path in _files(roots):
        with _content(path) as content:
            for prefix in prefixes:
                found.update(_begun(content, prefix.encode()))
    return sorted(found)


def _begun(content: mmap.mmap | bytes, prefix: bytes) -> Iterator[str]:
    at = content.find(prefix)
    while at >= 0:
        match = _VARIABLE.match(content[at : at + LONGEST_VARIABLE])
        if match and match[0] > prefix and not _IN_A_WORD.match(content[max(0, at - 1) : at]):
            yield match[0].decode()
        at = content.find(prefix, at + len(prefix))


def _files(roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Each file with its name as a person would look for it, from the package on."""
    for root in roots:
        for path in files(root):
            yield path.relative_to(root.parent).as_posix(), path


def files(root: Path) -> Iterator[Path]:
    """The files of a package, without documents; or the one file that it is."""
    if root.is_file():
        yield root
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if path.suffix not in DOCUMENTS and not hidden and path.is_file():
            yield path


class _Mentions:
    """Where names are read, so far: `left` are those for which no read was found."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.left = set(names)
        self._places: dict[str, dict[str, int]] = defaultdict(dict)
        self._fields: dict[str, set[str]] = defaultdict(set)
        self._copies: dict[str, set[str]] = defaultdict(set)

    def look(self, place: str, text: str) -> None:
        """Take out of `left` all that this file reads."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            self.left.difference_update(_WORD.findall(text))
            return
        self._place = place
        self._opaque = _READS_ALL_FIELDS.search(text) is not None
        self._visit(tree, frozenset())

    def settled(self) -> set[str]:
        """The names that are left, without those that are handed to what is not looked into."""
        for name in list(self.left):
            if not self._copies[name] <= self._fields[name]:
                self.left.discard(name)
        return self.left

    def declared(self, name: str) -> str:
        """Where a name is declared as a flag: in the file that declares most of them."""
        places = {place: found for place, found in self._places.items() if name in found}
        if not places:
            return ""
        place = max(places, key=lambda place: len(places[place]))
        return f"{place}:{places[place][name]}"

    def _visit(self, node: ast.AST, own: frozenset[str]) -> None:
        """Note reads below a node; `own` are names that are being declared there."""
        if isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.Call):
            self._call(node, own)
        elif not (isinstance(node, (ast.Tuple, ast.List, ast.Set)) and self._lists_all(node)):
            self._note(node, own)
            for below in ast.iter_child_nodes(node):
                self._visit(below, own)

    def _class(self, node: ast.ClassDef) -> None:
        for below in (*node.decorator_list, *node.bases, *node.keywords):
            self._visit(below, frozenset())
        for statement in node.body:
            self._visit(statement, _targets(statement))
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                if not self._opaque:
                    self._fields[name].add(node.name)
                self._declares(name, statement)

    def _call(self, node: ast.Call, own: frozenset[str]) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called == "add_argument":
            self._argument(node)
            return
        self._visit(node.func, own)
        for value in node.args:
            self._visit(value, own)
        for keyword in node.keywords:
            if _is_copy(keyword):
                self._copies[keyword.arg or ""].add(called)
            else:
                self._visit(keyword.value, own)

    def _argument(self, node: ast.Call) -> None:
        """The declaration of a flag: nothing in it is a read."""
        texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
        texts += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        for text in texts:
            self._declares(_spelt(text) if isinstance(text, str) else "", node)

    def _declares(self, name: str, node: ast.stmt | ast.Call) -> None:
        if name in self.names:
            self._places[self._place][name] = node.lineno

    def _lists_all(self, node: ast.Tuple | ast.List | ast.Set) -> bool:
        """Whether this is a list of the declarations themselves."""
        texts = {item.value for item in node.elts if isinstance(item, ast.Constant)}
        return 2 * len(texts & self.names) > len(self.names) > 1

    def _note(self, node: ast.AST, own: frozenset[str]) -> None:
        read: set[str] = set()
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store):
            read = {node.attr}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            read = {node.id}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            read = _named(node.value)
        elif isinstance(node, ast.AugAssign):
            read = {getattr(node.target, "attr", getattr(node.target, "id", ""))}
        else:
            read = set(getattr(node, "kwd_attrs", ()))  # case Args(steps=1)
        self.left -= read - own


def _targets(node: ast.stmt) -> frozenset[str]:
    """The fields that a statement of a class declares: what stands there is no read of them."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))


def _is_copy(keyword: ast.keyword) -> bool:
    """`name=anything.name`, with nothing else in the value that could be a read."""
    value = keyword.value
    if not isinstance(value, ast.Attribute) or value.attr != keyword.arg:
        return False
    return isinstance(value.value, ast.Name)


def _named(text: str) -> set[str]:
    """The names that a text is, holds as parts of a path, or asks for as a template."""
    if _DOTTED.fullmatch(text.lstrip("-")):
        return {_spelt(part) for part in text.split(".")}
    return {name or other for name, other in _TEMPLATE.findall(text)}


def _spelt(text: str) -> str:
    return text.lstrip("-").replace("-", "_")


def _built(text: str, names: set[str]) -> set[str]:
    """Those of the names that a text of source could put together at run time."""
    patterns = [
        r"\w+".join(re.escape(part) for part in re.split(hole, match[2]))
        for pattern, hole in _PUT_TOGETHER
        for match in pattern.finditer(text)
        if _says_something(re.sub(hole, "", match[2])) and re.search(hole, match[2])
    ]
    patterns += [f"{m[2]}\\w+" for p in _PREFIX for m in p.finditer(text) if _says_something(m[2])]
    patterns += [f"\\w+{m[2]}" for p in _SUFFIX for m in p.finditer(text) if _says_something(m[2])]
    return {name for pattern in set(patterns) for name in names if re.fullmatch(pattern, name)}


def _says_something(part: str) -> bool:
    return len(part.replace("_", "")) >= SHORTEST_PART


def _within(path: Path, names: set[str]) -> set[str]:
    """Those of the names that a file of another kind holds: a compiled module may read them."""
    with _content(path) as content:
        return {name for name in names if content.find(name.encode()) >= 0}


class _content:  # noqa: N801
    """The bytes of a file, however large it is."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        size = path.stat().st_size
        self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""

    def __enter__(self) -> mmap.mmap | bytes:
        return self._bytes

    def __exit__(self, *_: object) -> None:
        if isinstance(self._bytes, mmap.mmap):
            self._bytes.close()
        self._file.close()


def roots(package: str) -> list[Path]:
    """The folders of the package and of what it would load as its plugins."""
    names = {package}
    for group, points in _entry_points().items():
        if group.partition(".")[0] == package:
            names.update(point.value.partition(":")[0].partition(".")[0] for point in points)
    return [folder for name in sorted(names) for folder in _folders(name)]


def _entry_points() -> dict[str, Any]:
    found = importlib.metadata.entry_points()
    groups = getattr(found, "groups", None)  # before Python 3.10 the answer was a plain dict
    return dict(found) if groups is None else {g: found.select(group=g) for g in groups}


def _folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    return [Path(place) for place in spec.submodule_search_locations or [spec.origin or ""]]


if __name__ == "__main__":
    where = roots(sys.argv[1])
    print(
        json.dumps(
            {
                "unread": unread(where, json.loads(sys.argv[2])),
                "variables": variables(where, sys.argv[3:]),
            }
        )
    )
