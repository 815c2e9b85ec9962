"""The command line that one version of an engine has. Pure."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from tuner.flags.names import Value, canonical
from tuner.frozen import Frozen

Kind = Literal["presence", "negatable", "bool", "value", "optional", "list"]
"""How a flag is written: alone; alone or as `--no-flag`; with true or false; with a value; either
alone or with a value; with several values."""
How = Literal["parser", "source", "recorded", "built in"]
"""How the catalogue was made: by the installed engine's parser, by reading its source, when this
package was made, or from this package's own table (the rehearsal)."""

VARIABLES: Mapping[str, tuple[str, ...]] = {"sglang": ("SGLANG_", "SGL_"), "vllm": ("VLLM_",)}
"""How the variables begin that only this engine would read."""


class Flag(Frozen):
    """One flag. `choices` is None where anything is taken, or where nobody could tell;
    `deprecated` is what to write in its place, empty where nothing is, None where it is in use."""

    name: str
    aliases: list[str] = []
    kind: Kind = "value"
    choices: list[Value] | None = None
    default: Value = None
    deprecated: str | None = None


class Catalogue(Frozen):
    """The flags of one version. `dead` holds those that nothing reads, with where each is declared;
    `variables` the engine's own variables that the version knows, None where nobody looked."""

    engine: str
    version: str
    how: How
    flags: list[Flag]
    dead: dict[str, str] = {}
    variables: list[str] | None = None

    @property
    def title(self) -> str:
        """`sglang 0.5.17`."""
        return f"{self.engine} {self.version}"

    @cached_property
    def by_name(self) -> Mapping[str, Flag]:
        """Each flag by its own name and by its aliases, and `no-...` where that is one."""
        names: dict[str, Flag] = {}
        for flag in self.flags:
            for name in (flag.name, *flag.aliases):
                names[canonical(name)] = flag
                if flag.kind == "negatable":
                    names[canonical(f"no-{name}")] = flag
        return names

    def find(self, name: str) -> Flag | None:
        """The flag of this name; as the parser does, one that is cut short counts where only one
        begins so. What follows a dot is a key of its JSON value."""
        head = canonical(name).partition(".")[0]
        if head in self.by_name:
            return self.by_name[head]
        longer = {f.name: f for n, f in self.by_name.items() if head and n.startswith(head)}
        return next(iter(longer.values())) if len(longer) == 1 else None

    def is_dead(self, name: str) -> bool:
        """Whether the flag is declared and read by nothing."""
        flag = self.find(name)
        return flag is not None and flag.name in self.dead
