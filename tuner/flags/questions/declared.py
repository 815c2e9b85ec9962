"""Which flags an installed engine declares: what its parser says, or else its source.

    python -c SCRIPT sglang|vllm parser|source

Prints one line of JSON. The parser is exact, and wants all that the engine imports. Without that,
annotated fields and calls of `add_argument` are read as they are written; what is only computed
when the engine runs (a list of choices from a registry) stays unknown.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import json
import re
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_Told = dict[str, Any]

_VLLM_ARGUMENTS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_VLLM_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
"""Where newer versions and older ones have them."""
_PLAIN_ACTIONS = frozenset({"Store", "StoreConst", "StoreTrue", "StoreFalse", "Append", "Count"})
_REPLACEMENT = re.compile(r"deprecat.*?(--[a-z][\w-]*(?:=[\w{},]+)?)", re.IGNORECASE | re.DOTALL)


def from_parser(engine: str) -> list[_Told]:
    """What the engine's own parser declares. Raises whatever its import raises."""
    if engine == "sglang":
        parser = argparse.ArgumentParser()
        importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    else:
        arguments, parsers = _first(_VLLM_ARGUMENTS), _first(_VLLM_PARSERS)
        parser = arguments.make_arg_parser(parsers.FlexibleArgumentParser())
    return [flag for action in parser._actions for flag in _flag(action)]


def _first(names: Iterable[str]) -> types.ModuleType:
    """The first of these modules that this version has."""
    for name in names:
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(name):
                return importlib.import_module(name)
    raise ModuleNotFoundError(" and ".join(names))


def _flag(action: argparse.Action) -> list[_Told]:
    names = [text.lstrip("-") for text in action.option_strings if text.startswith("--")]
    kind = type(action).__name__.strip("_").replace("Action", "")
    if not names or kind in ("Help", "Version"):
        return []
    if "BooleanOptional" in kind:
        names = [name for name in names if not name.startswith("no-")]
    return [
        flag(
            names,
            dest=action.dest,
            kind=_kind(action, kind),
            choices=None if action.choices is None else [plain(c) for c in action.choices],
            default=plain(None if action.default is argparse.SUPPRESS else action.default),
            deprecated=_deprecated(action, kind),
            acts=kind not in _PLAIN_ACTIONS and "Deprecated" not in kind and "Bool" not in kind,
        )
    ]


def _kind(action: argparse.Action, kind: str) -> str:
    if "BooleanOptional" in kind:
        return "negatable"
    return kind_of(action.nargs, getattr(action.type, "__name__", ""))


def _deprecated(action: argparse.Action, kind: str) -> str | None:
    new = getattr(action, "new_flag", None)
    if new:
        return str(new).lstrip("-")
    said = action.help if isinstance(action.help, str) else ""
    return deprecation(said, certain="Deprecated" in kind or getattr(action, "deprecated", False))


def flag(
    names: list[str],
    *,
    dest: str,
    kind: str,
    choices: list[Any] | None,
    default: object,
    deprecated: str | None,
    acts: bool,
) -> _Told:
    """One flag as it is told: the name that its destination has comes first."""
    own = dest.replace("_", "-")
    first = own if own in names else names[0]
    return {
        "name": first,
        "aliases": [name for name in names if name != first],
        "dest": dest,
        "kind": kind,
        "choices": choices,
        "default": default,
        "deprecated": deprecated,
        "acts": acts,
    }


def kind_of(nargs: object, converter: str = "") -> str:
    """How a flag is written: alone, with a value, with several, or either way."""
    if nargs == 0:
        return "presence"
    if nargs == "?":
        return "optional"
    if nargs is None:
        return "bool" if converter in ("bool", "str2bool", "str_to_bool") else "value"
    return "list"


def deprecation(said: str, *, certain: bool = False) -> str | None:
    """What a help text names in place of a deprecated flag: empty where it names nothing, None
    where the flag is not deprecated."""
    head = said.lstrip(" ([*").lower()
    if not certain and not head.startswith(("deprecated", "note: --")):
        return None
    found = _REPLACEMENT.search(said) or re.search(r"use (--[a-z][\w-]*)", said)
    return found[1].lstrip("-") if found else ""


def plain(value: object) -> object:
    """A value as JSON holds it."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if value != float("inf") else None
    if isinstance(value, (list, tuple, set, frozenset)) and value:
        return " ".join(str(plain(item)) for item in value)
    return None


def from_source(package: Path) -> list[_Told]:
    """What the files of SGLang in this folder declare, without importing them."""
    folder = package / "srt"
    paths = [folder / "server_args.py", *sorted((folder / "arg_groups").rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]
    source = _Source(trees)
    flags = [flag for tree in trees for flag in source.fields(tree)]
    flags += [flag for tree in trees for flag in source.calls(tree)]
    return list({flag["name"]: flag for flag in flags}.values())


_UNKNOWN = object()


class _Source:
    """Declarations as they are written, with the names that they refer to."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self._lists: dict[str, list[Any]] = {}
        self._defaults: dict[str, Any] = {}
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value = self._value(node.value)
                if isinstance(value, list):
                    self._lists[node.targets[0].id] = value
            elif isinstance(node, ast.Call):
                self._extended(node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._defaults.setdefault(node.target.id, self._value(node.value))

    def fields(self, tree: ast.Module) -> Iterator[_Told]:
        """The flags of annotated fields: `name: A[type, "help" or Arg(...)] = default`."""
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                parts = _subscripts(node.annotation, {"A", "Annotated"})
                metas = [part for part in parts[1:] if _is_arg(part)]
                if metas:
                    meta = _keywords(metas[0])
                    if not self._is_true(meta.get("no_cli")):
                        yield self._field(node.target.id, parts[0], meta)

    def _field(self, name: str, kind: ast.expr, meta: dict[str, ast.expr]) -> _Told:
        own = self._value(meta.get("cli_name"))
        aliases = self._value(meta.get("aliases"))
        kind = _without_none(kind)
        literal = _subscripts(kind, {"Literal"})
        choices = self._value(meta["choices"]) if "choices" in meta else _UNKNOWN
        if "choices" not in meta and literal:
            choices = [self._value(part) for part in literal]
        nargs = self._value(meta.get("nargs"))
        if "action" in meta:
            said = _dict(meta.get("action_kwargs"))
            choices = self._value(said["choices"]) if "choices" in said else choices
            nargs = self._nargs({**said, "action": meta["action"]})
        elif "type_parser" not in meta and ast.unparse(kind).lower().startswith("list["):
            nargs = nargs or "+"
        elif ast.unparse(kind) == "bool":
            nargs = 0
        names = [own if isinstance(own, str) else name.replace("_", "-")]
        names += aliases if isinstance(aliases, list) else []
        default = self._defaults.get(name)
        return self._told(names, name, nargs, choices, default, meta, acts=_acts(meta))

    def calls(self, tree: ast.Module) -> Iterator[_Told]:
        """The flags of `add_argument` in functions that declare those of the server."""
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name == "add_cli_args":
                for node in ast.walk(function):
                    if isinstance(node, ast.Call) and _called(node) == "add_argument":
                        yield from self._call(node)

    def _call(self, node: ast.Call) -> Iterator[_Told]:
        names = [self._value(part) for part in node.args]
        names = [name for name in names if isinstance(name, str) and name.startswith("--")]
        meta = _keywords(node)
        if not names:
            return
        dest = self._value(meta.get("dest"))
        dest = dest if isinstance(dest, str) else names[0].lstrip("-").replace("-", "_")
        choices = self._value(meta["choices"]) if "choices" in meta else _UNKNOWN
        default = self._value(meta.get("default"))
        default = self._defaults.get(dest) if default is _UNKNOWN else default
        if self._value(meta.get("action")) == "store_true":
            default = bool(default)
        yield self._told(names, dest, self._nargs(meta), choices, default, meta, acts=_acts(meta))

    def _told(
        self,
        names: list[str],
        dest: str,
        nargs: object,
        choices: object,
        default: object,
        meta: dict[str, ast.expr],
        *,
        acts: bool,
    ) -> _Told:
        new = self._value(meta.get("new_flag"))
        old = "Deprecated" in _name(meta.get("action"))
        said = self._value(meta.get("help"))
        said = said if isinstance(said, str) else ""
        return flag(
            [name.lstrip("-") for name in names],
            dest=dest,
            kind="negatable" if nargs == "negatable" else kind_of(nargs),
            choices=[plain(c) for c in choices] if isinstance(choices, list) else None,
            default=None if default is _UNKNOWN else plain(default),
            deprecated=new.lstrip("-") if isinstance(new, str) else deprecation(said, certain=old),
            acts=acts,
        )

    def _nargs(self, meta: dict[str, ast.expr]) -> object:
        if "nargs" in meta:
            return self._value(meta["nargs"])
        action = self._value(meta.get("action"))
        named = action if isinstance(action, str) else _name(meta.get("action"))
        if "BooleanOptional" in named:
            return "negatable"
        alone = ("store_true", "store_false", "store_const", "count", "DeprecatedAction")
        return 0 if named in alone or named.endswith(("StoreTrueAction", "ConstAction")) else None

    def _extended(self, node: ast.Call) -> None:
        """`NAME.add("x")` and `NAME.append("x")`: what may be chosen under some condition."""
        if _called(node) in ("add", "append") and isinstance(node.func, ast.Attribute):
            value = self._value(node.args[0]) if node.args else _UNKNOWN
            if isinstance(value, str) and _name(node.func.value) in self._lists:
                self._lists[_name(node.func.value)].append(value)

    def _is_true(self, node: ast.expr | None) -> bool:
        return self._value(node) is True

    def _value(self, node: ast.expr | None) -> Any:
        """The value of an expression that stands there, or `_UNKNOWN`; a collection is a list."""
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            parts = [self._value(part) for part in node.elts]
            return _UNKNOWN if _UNKNOWN in parts else parts
        if isinstance(node, ast.Name):
            return self._lists.get(node.id, _UNKNOWN)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._value(node.left), self._value(node.right)
            if isinstance(left, str):
                return left + (right if isinstance(right, str) else "")
            both = isinstance(left, list) and isinstance(right, list)
            return left + right if both else _UNKNOWN
        if isinstance(node, ast.Call) and _called(node) in ("list", "set", "sorted", "tuple"):
            return self._value(node.args[0]) if len(node.args) == 1 else _UNKNOWN
        if isinstance(node, ast.Attribute) and _name(node.value) == "ServerArgs":
            return self._defaults.get(node.attr, _UNKNOWN)
        try:
            return ast.literal_eval(node) if node is not None else None
        except ValueError:
            return _UNKNOWN


def _acts(meta: dict[str, ast.expr]) -> bool:
    """Whether the flag's action is code of the engine's own, which may do anything."""
    action = _name(meta.get("action"))
    return bool(action) and "Deprecated" not in action and "BooleanOptional" not in action


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.Call) -> str:
    return _name(node.func)


def _keywords(node: ast.expr) -> dict[str, ast.expr]:
    if isinstance(node, ast.Call):
        return {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    return {"help": node}


def _dict(node: ast.expr | None) -> dict[str, ast.expr]:
    if not isinstance(node, ast.Dict):
        return {}
    pairs = zip(node.keys, node.values)  # noqa: B905
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _is_arg(node: ast.expr) -> bool:
    """`Arg(...)`, or a help text however it is put together."""
    if isinstance(node, ast.Call):
        return _called(node) == "Arg"
    return isinstance(node, (ast.JoinedStr, ast.BinOp)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _subscripts(node: ast.expr, names: set[str]) -> list[ast.expr]:
    """The parts between the brackets of `Name[...]` for one of these names."""
    if not isinstance(node, ast.Subscript) or _name(node.value) not in names:
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _without_none(node: ast.expr) -> ast.expr:
    """The X of `Optional[X]`, `Union[X, None]` and `X | None`."""
    parts = _subscripts(node, {"Optional", "Union"})
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    kept = [part for part in parts if ast.unparse(part) != "None"]
    return _without_none(kept[0]) if len(kept) == 1 else node


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name)
    return Path(next(iter(spec.submodule_search_locations)))


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        wanted, by = sys.argv[1:3]
        told = from_parser(wanted) if by == "parser" else from_source(_package(wanted))
    print()
    print(json.dumps(told))
