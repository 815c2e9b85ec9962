"""HTML from values: a text is escaped where it is put in, and nothing else makes markup. Pure."""

import html
from collections.abc import Iterable

from tuner.views.words import plain


class Html(str):
    """Markup as it stands in the page; every other text is escaped."""

    __slots__ = ()


Inside = str | int | float | None | Iterable["Inside"]
"""What an element may hold: texts, numbers, nothing, or more of them in order."""

_EMPTY = frozenset({"meta", "br"})


def element(tag: str, /, *inside: Inside, **attributes: str | float | None) -> Html:
    """One element; `class_` is the attribute class, underscores are dashes, None leaves one out."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _EMPTY:
        return Html(f"<{tag}{said}>")
    return Html(f"<{tag}{said}>{text(inside)}</{tag}>")


def text(inside: Inside) -> Html:
    """What may stand inside an element, escaped but for markup."""
    if inside is None:
        return Html("")
    if isinstance(inside, Html):
        return inside
    if isinstance(inside, str | int | float):
        return Html(_escaped(str(inside)))
    return Html("".join(text(part) for part in inside))


def _escaped(said: str) -> str:
    """Without what is no printable character: no parser agrees with another on those."""
    return html.escape(plain(said), quote=True)


def table(head: Iterable[Inside], rows: Iterable[Iterable[Inside]]) -> Html:
    """A table that scrolls by itself where the page is narrow."""
    header = element("tr", [element("th", name) for name in head])
    body = [element("tr", [element("td", cell) for cell in row]) for row in rows]
    whole = element("table", element("thead", header), element("tbody", body))
    return element("div", whole, class_="wide")


def page(title: str, style: str, body: Inside) -> str:
    """A whole document that needs nothing but itself, and may not fetch anything."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(style)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', body), lang='en')}\n"
