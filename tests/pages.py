"""Reads a page strictly: every element closed where it must be, every text where it stands."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "br"})


@dataclass
class Page(HTMLParser):
    """What a page holds; faults of its markup are kept, not mended."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if len(dict(attrs)) != len(attrs):
            self.faults.append(f"an attribute stands twice in <{tag}>")
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        self.faults.append(f"a declaration: {data}")

    def handle_pi(self, data: str) -> None:
        self.faults.append(f"an instruction: {data}")

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}


def read(text: str) -> Page:
    """The page, every element of which was closed in its order."""
    page = Page()
    page.feed(text)
    page.close()
    page.faults += [f"<{tag}> is not closed" for tag in page.open]
    assert page.faults == []
    return page
