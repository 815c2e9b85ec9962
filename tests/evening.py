"""A study folder on disk and records made by hand in it: what the verbs read, without a launch."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from tests.nightly import HOST, SimulatedExecutor
from tests.samples import record
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.failures.classifier import Failure
from tuner.night.course import TrialOrder
from tuner.night.ending import note_end
from tuner.night.environment import identity
from tuner.records import Records, TrialRecord

SMALL = Path(__file__).parent / "small_night"
RATES = {1: 20.0, 8: 80.0}
MARKUP = "[/foo] [bold]x[/] :warning: \x1b[31mred\x1b[0m"
"""What a log may hold: markup, an emoji's name, a colour."""
SHOWN_MARKUP = "[/foo] [bold]x[/] :warning: red"


def folder(at: Path, **replaced: str) -> Path:
    """A copy of the small rehearsed night; `study=...` appends to study.yaml, and so on."""
    made = at / "night"
    shutil.copytree(SMALL, made)
    for name, text in replaced.items():
        file = made / f"{name}.yaml"
        file.write_text(f"{file.read_text()}{text}\n")
    return made


def edit(folder: Path, file: str, old: str, new: str) -> None:
    """Replace a text that is there once in a file of the study."""
    path = folder / file
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new))


def launch(
    study: LoadedStudy,
    number: int,
    kind: str = "baseline",
    values: Mapping[str, Any] | None = None,
    *,
    gain: float = 1.0,
    **changes: Any,
) -> TrialRecord:
    """A completed launch of the study's ladder at `gain` times 20 and 80 tok/s; `values` on top
    of the baseline's."""
    configuration = study.space.configuration({**study.baseline.as_dict(), **(values or {})})
    return record(
        number,
        kind,
        key=configuration.key,
        values=configuration.as_dict(),
        rates={at: rate * gain for at, rate in RATES.items()},
        **{"rehearsal": True, "phase_s": {"start": 2.0, "load": 7.0, "stop": 0.5}, **changes},
    )


def failure(cause: str = "it broke", **changes: Any) -> Failure:
    """A failure of the configuration while the engine loads."""
    fields = {
        "kind": "oom",
        "cause": cause,
        "action": "never",
        "advice": "Take less.",
        "phase": "loading",
    }
    return Failure(**{**fields, **changes})


def died(
    study: LoadedStudy,
    number: int,
    values: Mapping[str, Any],
    cause: str = "it broke",
    *,
    kind: str = "search",
    hypothesis: str | None = None,
    **changes: Any,
) -> TrialRecord:
    """A launch that failed before it served."""
    made = launch(study, number, kind, values, hypothesis=hypothesis)
    return made.model_copy(
        update={"outcome": "failed", "rungs": [], "failure": failure(cause, **changes)}
    )


def keep(folder: Path, *records: TrialRecord) -> None:
    """Append the records, beside what they were measured on."""
    if not (folder / "environment.json").exists():
        remember(folder)
    kept = Records(folder)
    for made in records:
        kept.append(made)


def remember(folder: Path) -> None:
    """What a run writes beside its records: what they were measured on."""
    content = {"schema_number": 1, "identity": identity(load_study(folder), [HOST])}
    (folder / "environment.json").write_text(json.dumps(content))


def end(folder: Path) -> None:
    """What a run writes when its budget or its questions have ended with these records."""
    note_end(load_study(folder), list(Records(folder)), "nothing is left to try or to settle")


def won(folder: Path) -> LoadedStudy:
    """A night in which a large chunk won, flashinfer could not start and fa3 did nothing."""
    study = load_study(folder)
    large = {"chunked-prefill-size": 8192}
    keep(
        folder,
        *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)),
        launch(study, 3, "hypothesis", {"attention-backend": "fa3"}, hypothesis="fa3"),
        died(study, 4, {"attention-backend": "flashinfer"}, "Not enough memory.",
             kind="hypothesis", hypothesis="flashinfer", blame=["attention-backend"]),
        launch(study, 5, "search", large, gain=1.2),
        launch(study, 6, "confirm", large, gain=1.201),
        launch(study, 7, "baseline", gain=1.001),
        launch(study, 8, "confirm", large, gain=1.199),
        launch(study, 9, "baseline", gain=1.0),
        launch(study, 10, "confirm", large, gain=1.2),
    )  # fmt: skip
    end(folder)
    return study


class Host(SimulatedExecutor):
    """Stands for the cluster of a run: every launch ends at once, as `outcome(order)` says."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def hosts(outcome: Callable[[TrialOrder], TrialRecord | str]) -> Any:
    """A module that can stand for `tuner.hosts.cluster`."""
    return SimpleNamespace(Cluster=lambda gpus, address, *, use_gpus: Host(outcome))


def served(order: TrialOrder, gain: float = 1.0) -> TrialRecord:
    """That order's launch."""
    return record(
        order.number,
        order.kind,
        key=order.key,
        values=order.values,
        hypothesis=order.hypothesis,
        rates={at: rate * gain for at, rate in RATES.items()},
        rehearsal=True,
    )


def broken(order: TrialOrder, **changes: Any) -> TrialRecord:
    """That order's launch, failed before it served."""
    return served(order).model_copy(
        update={"outcome": "failed", "rungs": [], "failure": failure(**changes)}
    )
