"""The whole of a study in one page that can be sent: no network, no scripts, nothing beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tuner
from tuner.definitions.validation import LoadedStudy
from tuner.errors import StudyChanged
from tuner.night.environment import measured_by, remembered
from tuner.records import Records, TrialRecord
from tuner.verdicts.arms import Arms
from tuner.views import sections
from tuner.views.compare import Comparison, comparison
from tuner.views.export import Export, export
from tuner.views.html import Html, Inside, element, page
from tuner.views.machine import machine
from tuner.views.results import Front, StudyView, front, study_view
from tuner.views.sides import Side, baseline, front_runner

AXES = ("tok_s_per_user", "tok_s_per_gpu")

STYLE = """
:root{color-scheme:light dark;--line:#8886;--good:#1a7f37;--bad:#cf222e}
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h2{margin-top:2.2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top}
th{border-bottom:1px solid var(--line)}
.wide{overflow-x:auto}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid var(--line);padding:.7rem}
.label,.changed{font-weight:bold;border:2px solid var(--bad);padding:.4rem .7rem}
.verdict{font-size:1.2rem;font-weight:bold}
.good{color:var(--good)}.bad{color:var(--bad)}.dim{opacity:.7}
svg{max-width:40rem;width:100%}
svg text{font-size:12px;fill:currentColor}
.frame{fill:none;stroke:currentColor}
.front{fill:var(--good);stroke:var(--good)}.beaten{fill:#888;stroke:#888}.once{fill:none}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that the page says, before it is written."""

    view: StudyView
    front: Front
    command: Export | None
    no_command: str
    ladder: Comparison | None
    baseline: Side | None
    runner: Side | None
    identity: Mapping[str, Any]
    machine: Mapping[str, str]
    objective: Mapping[str, Any]
    records: tuple[TrialRecord, ...]


def report(study: LoadedStudy, records: Records) -> Report:
    """Gather what the records and the definitions say. Raises RecordsError for damage."""
    arms = Arms(records, study.objective, study.baseline.key)
    ours, best = baseline(study, arms), front_runner(study, arms)
    command, refused = _command(study, records)
    return Report(
        view=study_view(study, records),
        front=front(study, records, *AXES),
        command=command,
        no_command=refused,
        ladder=comparison(arms, ours, best) if ours and best else None,
        baseline=ours,
        runner=best,
        identity=remembered(study.folder) or {},
        machine=measured_by(study.folder),
        objective=study.objective.model_dump(mode="json"),
        records=tuple(records),
    )


def _command(study: LoadedStudy, records: Records) -> tuple[Export | None, str]:
    try:
        return export(study, list(records)), ""
    except StudyChanged as error:
        return None, f"Not shown, since the study is another by now: {error.message}"


def written(found: Report) -> str:
    """The page."""
    view = found.view
    parts: list[Inside] = [
        element("h1", view.study),
        sections.label(view),
        sections.changed(view),
        sections.verdict(view),
        _section("Launch command", sections.command(found.command, found.no_command)),
        _section("The ladder", sections.ladder(found.ladder, found.baseline, found.runner, view)),
        _section("Hypotheses", sections.hypotheses(view)),
        _section("Never again", sections.never_again(view)),
        _section("Noise and drift", sections.noise(view)),
        _section("Trade-offs", sections.trade_offs(found.front)),
        _section("Beside the load", machine(found.baseline, found.runner, view.said)),
        _section("Trials", sections.trials(view)),
        _section("What was measured, and on what",
                 sections.environment(found.identity, found.machine, found.objective,
                                      found.records, view)),
        element("p", f"Written by tuner {tuner.__version__}.", class_="dim"),
    ]  # fmt: skip
    return page(f"{view.study}: tuner report", STYLE, parts)


def _section(title: str, inside: Html | list[Html]) -> Html:
    return element("section", element("h2", title), inside)
