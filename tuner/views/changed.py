"""How a configuration differs from the baseline, as it may be shown."""

from tuner.definitions.domain import same
from tuner.definitions.models import Value
from tuner.definitions.space import shown
from tuner.definitions.validation import LoadedStudy


def changes(values: dict[str, Value], study: LoadedStudy) -> dict[str, Value]:
    """How a configuration differs from the baseline; None for what it leaves out, no secret."""
    baseline = study.baseline.as_dict()
    names = [*values, *(name for name in baseline if name not in values)]
    differ = [name for name in names if not same(values.get(name), baseline.get(name))]
    return {name: _shown(study, name, values.get(name)) for name in differ}


def _shown(study: LoadedStudy, name: str, value: Value) -> Value:
    parameter = study.space.parameters.get(name)  # none: the space changed after the launch
    return value if parameter is None else shown(name, parameter, value)
