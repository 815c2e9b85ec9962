"""Shell text → the commands in it, with variables put in; the only user of tree-sitter.

Assignments, exports, arrays, quotes, comments, pipes and redirections are followed. What would have
to be run to be known (loops, `$(...)`, positional parameters) is kept aside with the reason, and so
is every variable that depends on it: it matters only where the launch needs it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tuner.errors import TunerError

PLACEHOLDER = "\ue000"
"""Stands for the `<` of a placeholder such as <your-token>, which a shell would take for a file."""

_PLACEHOLDER = re.compile(r"(?<![<\d&\s])<([A-Za-z][\w. -]*)>|(?<=\s)<([A-Za-z][\w.-]*)>")
_BROKEN_CONTINUATION = re.compile(r"\\[ \t]+$", re.MULTILINE)
_PROMPT = re.compile(
    r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+(?::[^\s$#]*)?[ \t]*)?[$!][ \t]*(?=\S)"
)
_CONTINUED = re.compile(r"^> ?")
_FENCE = re.compile(r"^[ \t]*(```|~~~).*$", re.MULTILINE)
_COMPOUND = {
    "for_statement": "a loop",
    "c_style_for_statement": "a loop",
    "while_statement": "a loop",
    "if_statement": "an if",
    "case_statement": "a case",
    "function_definition": "a function",
}
_UNKNOWN = {
    "command_substitution": "the output of a command",
    "process_substitution": "the output of a command",
    "arithmetic_expansion": "arithmetic",
    "brace_expression": "a brace expansion",
}
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([\\"$`]|\n)')


class Unreadable(TunerError):
    """A part of the text that cannot be known without running it; or that is no shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its words, what is exported to it, the folder that it is run in, and where it
    stands (`line 3`)."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The commands of a text in order; `unread` are parts that would have to be run, as
    (their text, why); `defaults` says which variables were taken as their defaults."""

    commands: tuple[Command, ...]
    unread: tuple[tuple[str, Unreadable], ...]
    defaults: tuple[str, ...]


def read(text: str, folder: Path, variables: Mapping[str, str]) -> Script:
    """The commands of a shell text that is run in `folder`, where `variables` are set beforehand.

    Raises Unreadable for a text that is not shell.
    """
    source = _PLACEHOLDER.sub(_placeholder, _unprompted(text))
    source = _BROKEN_CONTINUATION.sub(r"\\", source)
    data = source.encode()
    root = Parser(Language(tree_sitter_bash.language())).parse(data).root_node
    if root.has_error:
        raise _not_shell(root, source)
    reader = _Reader(data=data, folder=folder, variables=dict(variables))
    reader.statement(root)
    return Script(
        commands=tuple(reader.commands),
        unread=tuple(reader.unread),
        defaults=tuple(dict.fromkeys(reader.defaults)),
    )


def _placeholder(match: re.Match[str]) -> str:
    return PLACEHOLDER + str(match[1] or match[2]).replace(" ", "-")


def _unprompted(text: str) -> str:
    """The text without prompts and the fences of Markdown, line by line."""
    lines = _FENCE.sub("", text.replace("\r\n", "\n")).split("\n")
    first = next((line for line in lines if line.strip()), "")
    if not _PROMPT.match(first):
        return "\n".join(lines)
    return "\n".join(_CONTINUED.sub("", _PROMPT.sub("", line)) for line in lines)


def _not_shell(root: Node, source: str) -> Unreadable:
    node = _first_error(root)
    line = node.start_point.row
    text = source.split("\n")[line].strip() if node.type == "ERROR" else ""
    shown = f": {_short(text)}" if text else ""
    return Unreadable(
        f"line {line + 1} cannot be read as shell{shown}",
        hint="A quote or a bracket may be missing.",
    )


def _first_error(node: Node) -> Node:
    for child in node.children:
        if child.is_missing or child.type == "ERROR":
            return child
        if child.has_error:
            return _first_error(child)
    return node


def _short(text: str, length: int = 40) -> str:
    first = text.split("\n")[0]
    return f"'{first}'" if len(first) <= length else f"'{first[:length]}...'"


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Follows the statements of one text."""

    data: bytes
    folder: Path
    variables: dict[str, str]
    arrays: dict[str, list[str]] = field(default_factory=dict)
    unknown: dict[str, Unreadable] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    unread: list[tuple[str, Unreadable]] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)

    def statement(self, node: Node) -> None:
        """Follow a statement and all in it; what cannot be followed is kept aside."""
        if node.type in _COMPOUND:
            self._aside(node, self._why(node, _COMPOUND[node.type]))
        elif node.type in _STATEMENTS:
            try:
                _STATEMENTS[node.type](self, node)
            except Unreadable as why:
                self._aside(node, why)
        else:
            for child in node.named_children:
                self.statement(child)

    def _aside(self, node: Node, why: Unreadable) -> None:
        self.unread.append((self._source(node), why))
        for name in _assigned_in(node):
            self.unknown[name] = why

    def _assignment(self, node: Node) -> None:
        name, value = self._named(node)
        if _appends(node):
            self._known(name)
        if value is not None and value.type == "array":
            self._array(node, name, value)
            return
        self.variables[name] = self._joined(node, name) + (
            "" if value is None else self._text(value)
        )
        self.unknown.pop(name, None)

    def _array(self, node: Node, name: str, value: Node) -> None:
        parts = [child for child in value.named_children if child.type != "comment"]
        words = [word for part in parts for word in self._words(part)]
        before = self.arrays.get(name, []) if _appends(node) else []
        self.arrays[name] = [*before, *words]
        self.unknown.pop(name, None)

    def _joined(self, node: Node, name: str) -> str:
        return self.variables.get(name, "") if _appends(node) else ""

    def _named(self, node: Node) -> tuple[str, Node | None]:
        name = node.child_by_field_name("name")
        if name is None or name.type != "variable_name":
            raise self._why(node, "an assignment to an element")
        return self._source(name), node.child_by_field_name("value")

    def _declaration(self, node: Node) -> None:
        exports = self._source(node.children[0]) in {"export", "declare", "typeset"}
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assignment(child)
                name, _ = self._named(child)
            else:
                name = self._source(child)
            if exports and name.isidentifier():
                self.exported[name] = None

    def _command(self, node: Node) -> None:
        words, own = [], {}
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, value = self._named(child)
                own[name] = "" if value is None else self._text(value)
            elif child.type not in {"file_redirect", "herestring_redirect", "comment"}:
                inner = child.named_children[0] if child.type == "command_name" else child
                words += self._words(inner)
        if words[:1] == ["cd"] and len(words) == 2:
            self.folder = self.folder / words[1]
        exported = {n: self.variables[n] for n in self.exported if n in self.variables}
        where = f"line {node.start_point.row + 1}"
        self.commands.append(
            Command(words=tuple(words), env={**exported, **own}, folder=self.folder, where=where)
        )

    def _words(self, node: Node) -> list[str]:
        """The words that one argument becomes: none, one, or several."""
        array = _whole_array(node)
        if array is not None:
            name = self._source(array)
            self._known(name)
            return list(self.arrays.get(name, []))
        text = self._text(node)
        if node.type in {"simple_expansion", "expansion"}:
            return [text] if text.startswith("${") else text.split()
        return [text]

    def _text(self, node: Node) -> str:
        kind = _TEXTS.get(node.type)
        if kind is None:
            raise self._why(node, _UNKNOWN.get(node.type, node.type.replace("_", " ")))
        return kind(self, node)

    def _plain(self, node: Node) -> str:
        text = _ESCAPED.sub(lambda m: "" if m[1] == "\n" else m[1], self._source(node))
        home = self.variables.get("HOME")
        if home and (text == "~" or text.startswith("~/")) and _begins_word(node):
            return home + text[1:]
        return text

    def _string(self, node: Node) -> str:
        """Between the quotes; blanks before an expansion belong to its dollar in the tree."""
        parts, at = [], node.start_byte + 1
        for child in node.named_children:
            parts.append(_unescaped(self.data[at : child.start_byte].decode()))
            source = self._source(child)
            if child.type == "string_content":
                parts.append(_unescaped(source))
            else:
                parts += [source[: len(source) - len(source.lstrip())], self._text(child)]
            at = child.end_byte
        return "".join([*parts, _unescaped(self.data[at : node.end_byte - 1].decode())])

    def _raw(self, node: Node) -> str:
        return self._source(node)[1:-1]

    def _ansi(self, node: Node) -> str:
        inner = self._source(node)[2:-1]
        return inner.encode("latin-1", "backslashreplace").decode("unicode_escape")

    def _concatenation(self, node: Node) -> str:
        return "".join(self._text(child) for child in node.named_children)

    def _simple_expansion(self, node: Node) -> str:
        return self._value(self._source(node.named_children[0]), node)

    def _expansion(self, node: Node) -> str:
        inner = node.named_children
        if not inner or inner[0].type != "variable_name":
            raise self._why(node, "an expansion")
        name, operator = self._source(inner[0]), node.child_by_field_name("operator")
        sign = self._source(operator) if operator is not None else ""
        if sign in {":-", "-", ":=", "="} and name not in self.variables:
            default = "".join(self._text(child) for child in inner[1:])
            self.defaults.append(f"{name} was taken as its default, '{default}'")
            if sign not in {":=", "="}:
                return default
            self.variables[name] = default
        elif sign not in {"", ":-", "-", ":=", "=", ":?", "?"}:
            raise self._why(node, "an expansion")
        return self._value(name, node)

    def _value(self, name: str, node: Node) -> str:
        self._known(name)
        if not name.isidentifier():
            raise self._why(node, "a parameter of the script")
        if name in self.arrays:
            raise self._why(node, "one element of an array")
        return self.variables.get(name, f"${{{name}}}")

    def _known(self, name: str) -> None:
        if name in self.unknown:
            raise self.unknown[name]

    def _substitution(self, node: Node) -> str:
        if re.sub(r"[\s$()`]", "", self._source(node)) == "pwd":
            return str(self.folder)
        raise self._why(node, _UNKNOWN["command_substitution"])

    def _source(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode()

    def _why(self, node: Node, what: str) -> Unreadable:
        line = node.start_point.row + 1
        return Unreadable(
            f"line {line}: cannot read {what}, {_short(self._source(node))}, without running it",
            hint="Write out what it stands for.",
        )


_STATEMENTS: Mapping[str, Callable[[_Reader, Node], None]] = {
    "variable_assignment": _Reader._assignment,
    "declaration_command": _Reader._declaration,
    "command": _Reader._command,
    "heredoc_body": lambda _reader, _node: None,
    "file_redirect": lambda _reader, _node: None,
    "heredoc_redirect": lambda _reader, _node: None,
    "herestring_redirect": lambda _reader, _node: None,
    "comment": lambda _reader, _node: None,
    "test_command": lambda _reader, _node: None,
    "unset_command": lambda _reader, _node: None,
}
_TEXTS: Mapping[str, Callable[[_Reader, Node], str]] = {
    "word": _Reader._plain,
    "variable_name": _Reader._plain,  # as the parser calls what stands before a hyphen in a default
    "number": _Reader._plain,
    "string": _Reader._string,
    "raw_string": _Reader._raw,
    "ansi_c_string": _Reader._ansi,
    "concatenation": _Reader._concatenation,
    "simple_expansion": _Reader._simple_expansion,
    "expansion": _Reader._expansion,
    "command_substitution": _Reader._substitution,
}


def _whole_array(node: Node) -> Node | None:
    """The name in `"${NAME[@]}"` or `${NAME[@]}`, where that is the whole argument."""
    if node.type == "string" and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type != "expansion" or node.named_child_count != 1:
        return None
    subscript = node.named_children[0]
    index = subscript.child_by_field_name("index") if subscript.type == "subscript" else None
    whole = index is not None and index.text in {b"@", b"*"}
    return subscript.child_by_field_name("name") if whole else None


def _appends(node: Node) -> bool:
    return any(child.type == "+=" for child in node.children)


def _begins_word(node: Node) -> bool:
    parent = node.parent
    return parent is None or parent.type != "concatenation" or parent.start_byte == node.start_byte


def _unescaped(text: str) -> str:
    return _ESCAPED_IN_QUOTES.sub(lambda m: "" if m[1] == "\n" else m[1], text)


def _assigned_in(node: Node) -> list[str]:
    found = [name for child in node.named_children for name in _assigned_in(child)]
    name = node.child_by_field_name("name") if node.type == "variable_assignment" else None
    if node.type == "for_statement":
        name = node.child_by_field_name("variable")
    return found + ([name.text.decode()] if name is not None and name.text else [])
