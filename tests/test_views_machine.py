"""What was seen beside a load is shown where it was seen, and nowhere else."""

from types import SimpleNamespace
from typing import Any, cast

from tests.samples import rung
from tuner.measuring.machine import MachineUse
from tuner.measuring.measurement import EngineLoad, RungMeasurement
from tuner.views.machine import known_rows, machine, unobserved
from tuner.views.sides import Side

SEEN = MachineUse(
    power_w=2650.4,
    tok_per_joule=1.25,
    joules_per_token=0.8,
    throttled={"power_cap": 0.5, "hw_thermal": 0.02, "hw_slowdown": 0.01},
    host_cpu_share=0.125,
    unobserved=["one", "two"],
)
LOAD = EngineLoad(
    running_mean=1, running_max=1, queued_mean=0, queued_max=0, samples=9, kv_usage_max=0.875,
    preempted=0,
)  # fmt: skip


def with_machine(seen: MachineUse | None, level: int = 1) -> RungMeasurement:
    return rung(level, 100.0).model_copy(update={"machine": seen, "engine_load": LOAD})


def test_a_row_stands_where_one_rung_shows_it() -> None:
    assert known_rows([with_machine(SEEN), with_machine(None, 4)]) == [
        ("KV cache used, most", ["88%", "88%"]),
        ("requests preempted", ["0", "0"]),
        ("GPU power, W", ["2650", "-"]),
        ("output tokens a joule", ["1.25", "-"]),
        ("joules an output token", ["0.8", "-"]),
        ("GPU at its power cap", ["50%", "-"]),
        ("GPU slowed down by heat or supply", ["2%", "-"]),
        ("host's cores busy", ["12%", "-"]),
    ]
    assert known_rows([rung(1, 1.0)]) == []


def test_what_could_not_be_seen_is_said_once() -> None:
    other = MachineUse(unobserved=["two", "three"])
    rungs = [with_machine(SEEN), with_machine(None), with_machine(other)]
    assert unobserved(rungs) == ["one", "two", "three"]


def test_a_report_shows_several_launches_from_the_least_to_the_most() -> None:
    hotter = SEEN.model_copy(update={"power_w": 2700.0, "unobserved": []})
    launches = [SimpleNamespace(rungs=[with_machine(seen)]) for seen in (SEEN, hotter)]
    side = cast(Side, cast(Any, SimpleNamespace(name="the baseline", launches=launches)))
    (table, one, two) = machine(side, None, str)
    assert "<td>GPU power, W</td><td>2650 to 2700</td>" in table
    assert "the baseline" in table
    assert (">one.<" in one, ">two.<" in two) == (True, True)
    assert machine(None, None, str) == ["<p>Nothing was observed.</p>"]
