"""The second attempt at a void rung is what its doubts ask for."""

import os
from dataclasses import replace
from typing import Any

import pytest

from tuner.load import RungPlan, Target
from tuner.load.prompts import Asking
from tuner.load.readying import prompts_for
from tuner.measuring.machine import MachineUse
from tuner.measuring.measurement import measure
from tuner.measuring.observed import Doubt
from tuner.measuring.validity import RULES
from tuner.night.heeding import heeded, idle_cores
from tuner.night.silence import SILENCE

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
        (["client_cpu"], {"processes": 2}),
        (["together"], {"processes": 2}),
        (["client_wait", "lateness"], {}),
        ([SILENCE], {"warmup_s": 10.0, "window_s": 20.0}),
        (["drift", "percentiles"], {"warmup_s": 10.0, "window_s": 20.0}),
        (["memory"], {}),
    ],
)
def test_it_changes_what_was_doubted_and_never_repeats_a_prompt(rules, changed):
    again = heeded(PLAN, [doubt(rule) for rule in rules], rungs=3, idle_cores=1.5)
    assert {SILENCE, *(rule.__name__ for rule in RULES)} >= set(rules)
    for name in ("warmup_s", "window_s", "processes"):
        assert getattr(again, name) == changed.get(name, getattr(PLAN, name))


def test_remarks_change_nothing():
    again = heeded(PLAN, [doubt("client_cpu", voids=False)], rungs=3, idle_cores=8.0)
    assert again.processes == PLAN.processes


def test_a_full_client_gets_no_core_that_somebody_else_uses():
    again = heeded(PLAN, [doubt("client_cpu")], rungs=3, idle_cores=0.9)
    assert again.processes == PLAN.processes


def test_cores_are_idle_where_somebody_saw_them_so(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    rung = measure([], concurrency=1, start_s=0.0, end_s=1.0, gpus=1)
    assert idle_cores(rung) == 0
    unseen, seen = MachineUse(), MachineUse(host_cpu_share=0.75)
    assert idle_cores(rung.model_copy(update={"machine": unseen})) == 0
    assert idle_cores(rung.model_copy(update={"machine": seen})) == 2


def test_the_load_stays_as_it_was_and_no_prompt_does():
    """Of three rungs, each measured twice."""
    target = Target(base_url="http://127.0.0.1:1", api="completions", model="m")
    asking = Asking(8, 8)
    prompts: list[tuple[int, ...]] = []
    for rung_index in range(3):
        first = replace(PLAN, rung_index=rung_index)
        second = heeded(first, [doubt("memory")], rungs=3)
        assert replace(second, prompt_offset=0) == first
        prompts += [
            tuple(map(int, prompts_for(target, plan).next(asking))) for plan in (first, second)
        ]
    assert len(set(prompts)) == 6
