"""The shape of every document that a verb prints with `--json`, as JSON Schema."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from tuner.verbs.doctor import Diagnosis
from tuner.verbs.explain import Explanation
from tuner.verbs.init import Started
from tuner.verbs.inspect import Check, TrialView
from tuner.verbs.measure import Measured
from tuner.views.compare import Comparison
from tuner.views.export import Export
from tuner.views.plan import Plan
from tuner.views.results import Front, StudyView

DOCUMENTS: Mapping[str, Any] = {
    "check": Check,
    "compare": Comparison,
    "doctor": Diagnosis,
    "explain": Explanation,
    "export": Export,
    "init": Started,
    "measure": Measured,
    "pareto": Front,
    "plan": Plan,
    "run": StudyView,
    "show": StudyView | TrialView,
}
"""By verb; that of `show` depends on whether a trial was named."""


def schema(verb: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of what that verb prints."""
    made = TypeAdapter(DOCUMENTS[verb]).json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
