"""The rehearsal engine: SGLang's names in front of a process that behaves as a surface says."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import tuner
from tuner.definitions.surface import Surface
from tuner.definitions.validation import load
from tuner.engines.base import LaunchSpec
from tuner.engines.interpreter import in_folder, launch_words
from tuner.engines.sglang import SGLangEngine
from tuner.errors import DefinitionError, EngineError
from tuner.flags.catalogue import Catalogue, Kind
from tuner.flags.catalogue import Flag as CatalogueFlag
from tuner.flags.sglang import FLAGS, Flag
from tuner.flags.sglang_table import VERSION

_HOME = str(Path(tuner.__file__).parent.parent)


class RehearsalEngine(SGLangEngine):
    """`python -m tuner.rehearsal`; nothing that is measured against it is a benchmark."""

    name = "rehearsal"
    rehearsal = True
    module = "tuner.rehearsal"

    def __init__(self, spec: LaunchSpec) -> None:
        """Raises EngineError without a surface file, DefinitionError for a wrong one."""
        super().__init__(spec)
        if spec.engine.surface is None:
            raise EngineError("engine: a rehearsal needs a surface", hint="Add surface: FILE.")
        self._surface = Path(in_folder(spec.folder, spec.engine.surface))
        surface = load(self._surface, Surface)
        self.time_scale, self.turnaround_s = surface.time_scale, surface.turnaround_s

    def launch_words(self) -> tuple[str, ...]:
        """The study's own way to launch it, where it names one, else this interpreter."""
        engine = self.spec.engine
        own = engine.python or engine.command or engine.image or self.spec.build
        words = launch_words(self.spec, self.module) if own else (sys.executable, "-m", self.module)
        return (*words, "--surface", str(self._surface))

    def injected_env(self, extra_ports: tuple[int, ...]) -> Mapping[str, str]:
        """This package, so that it is found from whatever folder it is launched in."""
        inherited = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join([_HOME, inherited] if inherited else [_HOME])}

    def own_paths(self) -> tuple[str, ...]:
        """This package and the surface: no image has them."""
        return (_HOME, str(self._surface))

    def version(self) -> str | None:
        """The version whose command line it takes."""
        return f"{VERSION} (rehearsal)"

    def catalogue(self) -> Catalogue:
        """Its command line; what is dead in it is what the surface says."""
        dead = load(self._surface, Surface).dead
        return Catalogue(
            engine=self.name,
            version=f"of SGLang {VERSION}",
            how="built in",
            flags=[_declared(flag) for flag in FLAGS.values()],
            dead=dict.fromkeys(dead, self._surface.name),
        )

    def package_faults(self) -> list[str]:
        """None: it comes with the tuner."""
        return []

    def model_faults(self) -> list[str]:
        """What is wrong with the surface file, which stands for a model."""
        try:
            load(self._surface, Surface)
        except DefinitionError as exc:
            return [str(problem) for problem in exc.problems]
        return []


def _declared(flag: Flag) -> CatalogueFlag:
    kind: Kind = "presence" if flag.kind is None else "list" if flag.several else "value"
    return CatalogueFlag(
        name=flag.name,
        aliases=list(flag.aliases),
        kind=kind,
        choices=list(flag.choices) or None,
        default=flag.default,
    )
