"""The second attempt at a void rung is what its doubts ask for."""

from typing import Any

import pytest

from tuner.load import RungPlan
from tuner.measuring.observed import Doubt
from tuner.measuring.validity import RULES
from tuner.night.heeding import heeded

PLAN = RungPlan(
    concurrency=4,
    lengths=((8, 8),),
    warmup_s=5.0,
    window_s=10.0,
    prompt_seed=1,
    order_seed=2,
    rung_index=1,
)


def doubt(rule: str, **more: Any) -> Doubt:
    return Doubt.of(rule, "4", 2.0, 1.0, "said", "advice", **more)


@pytest.mark.parametrize(
    ("rules", "changed"),
    [
        (["warm_up"], {"warmup_s": 10.0}),
        (["drift"], {"warmup_s": 10.0}),
        (["percentiles"], {"window_s": 20.0}),
        (["client_cpu", "lateness"], {"processes": 2}),
        (["drift", "percentiles"], {"warmup_s": 10.0, "window_s": 20.0}),
        (["memory"], {}),
    ],
)
def test_it_changes_what_was_doubted_and_never_repeats_a_prompt(rules, changed):
    again = heeded(PLAN, [doubt(rule) for rule in rules], rungs=3)
    assert {rule.__name__ for rule in RULES} >= set(rules)
    assert again.rung_index == 4
    for name in ("warmup_s", "window_s", "processes"):
        assert getattr(again, name) == changed.get(name, getattr(PLAN, name))


def test_remarks_change_nothing():
    again = heeded(PLAN, [doubt("client_cpu", voids=False)], rungs=3)
    assert again.processes == PLAN.processes
