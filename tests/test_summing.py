"""Looks at known moments become the numbers that they must."""

import pytest

from tuner.engines.metric_names import MetricNames
from tuner.hosts.gpu_use import GpuLook
from tuner.hosts.kernel_counts import PAGE_BYTES, Memory, Ticks
from tuner.measuring.machine import MachineUse
from tuner.observers.summing import engine_load, machine_use
from tuner.observers.watcher import Look, Told

NAMES = MetricNames(
    running="run", queued="wait", kv_usage=("kv", "old_kv"), preempted=("lost",),
    looked_up=("asked",), found=("hit",),
)  # fmt: skip


def gpu(energy_j: float | None, **other: object) -> GpuLook:
    values = {
        "power_w": 300.0, "clock_mhz": 1500.0, "throttled": [], "temperature_c": 50.0,
        "memory_mb": 1000.0, "utilisation": 0.5,
    }  # fmt: skip
    return GpuLook(**{"energy_j": energy_j, **values, **other})  # type: ignore[arg-type]


def look(at_s: float, *gpus: GpuLook, **other: object) -> Look:
    values: dict[str, object] = {
        "foreign": [], "ticks": Ticks(round(100 * at_s), round(50 * at_s)),
        "memory": Memory(100.0, 40.0 - at_s, 8.0, 8.0), "swapped_pages": 0, "stall_s": 0.0,
        "metrics": None,
    }  # fmt: skip
    return Look(**{"at_s": at_s, "gpus": list(gpus), **values, **other})  # type: ignore[arg-type]


def used(*looks: Look, since_s: float = 10.0, until_s: float = 20.0) -> MachineUse:
    return machine_use(Told(list(looks), []), since_s=since_s, until_s=until_s)


def test_energy_is_what_the_counters_grew_between_the_windows_edges() -> None:
    use = used(
        look(9.0, gpu(1000.0), gpu(0.0)),  # 1 s before: 400 W + 100 W until 11
        look(11.0, gpu(1800.0), gpu(200.0)),
        look(19.0, gpu(7400.0), gpu(1000.0)),
        look(21.0, gpu(8800.0), gpu(1200.0)),
    )
    assert use.energy_j == pytest.approx(400 + 5600 + 700 + 1000)
    assert use.power_w == pytest.approx(770.0)
    held = use.per_token(7700.0)
    assert [held.tok_per_joule, held.joules_per_token] == pytest.approx([1.0, 1.0])
    assert use.per_token(0.0) is use


def test_without_a_counter_energy_is_the_mean_power_over_the_window() -> None:
    looks = [look(at_s, gpu(None, power_w=power)) for at_s, power in ((12.0, 100.0), (18.0, 300.0))]
    use = used(*looks)
    assert (use.power_w, use.energy_j) == (200.0, 2000.0)


def test_a_counter_that_was_not_seen_up_to_the_edges_is_drawn_out_to_them() -> None:
    assert used(look(10.5, gpu(80.0)), look(19.7, gpu(1000.0))).energy_j == pytest.approx(1000.0)


def test_a_counter_that_was_seen_for_a_part_of_the_window_says_nothing_of_the_rest() -> None:
    looks = [look(at_s, gpu(joules, power_w=None)) for at_s, joules in ((12.0, 0.0), (20.5, 850.0))]
    use = used(*looks)
    assert (use.energy_j, use.power_w, use.host_cpu_share) == (None, None, None)
    assert (use.swapped_bytes_s, use.memory_stall_share) == (None, None)


def test_a_counter_that_began_anew_says_nothing() -> None:
    use = used(look(9.0, gpu(9000.0, power_w=None)), look(21.0, gpu(100.0, power_w=None)))
    assert (use.energy_j, use.power_w) == (None, None)


def test_what_is_of_a_moment_is_of_the_looks_inside() -> None:
    use = used(
        look(
            9.0, gpu(0.0, clock_mhz=1.0, temperature_c=99.0, throttled=["hw_thermal"]), foreign=[1]
        ),
        look(12.0, gpu(1.0, clock_mhz=1000.0, throttled=["power_cap"]), foreign=[7]),
        look(
            15.0, gpu(2.0, clock_mhz=2000.0, throttled=["power_cap", "hw_slowdown"]), foreign=[5, 7]
        ),
        look(18.0, gpu(3.0, clock_mhz=3000.0, temperature_c=60.0, memory_mb=3000.0)),
        look(21.0, gpu(4.0, clock_mhz=1.0), foreign=[1]),
    )
    assert (use.clocks_mhz, use.temperature_c, use.memory_mb) == (2000.0, 60.0, 3000.0)
    assert use.throttled == pytest.approx({"power_cap": 2 / 3, "hw_slowdown": 1 / 3})
    assert use.foreign_pids == [5, 7]
    assert (use.available_memory_mb, use.host_memory_mb) == (22_000.0, 100_000.0)


def test_a_window_between_two_looks_has_the_last_of_them_for_its_moment() -> None:
    use = used(look(9.0, gpu(0.0, clock_mhz=1.0)), look(21.0, gpu(1200.0, clock_mhz=2.0)))
    assert [use.clocks_mhz, use.energy_j] == pytest.approx([2.0, 1000.0])


def test_the_host_is_counted_over_the_window() -> None:
    use = used(
        look(10.0, swapped_pages=0, stall_s=1.0, ticks=Ticks(0, 0)),
        look(20.0, swapped_pages=1000, stall_s=1.5, ticks=Ticks(8000, 2000)),
    )
    assert use.host_cpu_share == pytest.approx(0.75)
    assert use.swapped_bytes_s == pytest.approx(100 * PAGE_BYTES)
    assert use.memory_stall_share == pytest.approx(0.05)


def test_a_machine_elsewhere_and_one_that_nobody_saw_have_no_numbers() -> None:
    assert used(*[look(at_s, ticks=None, memory=None, stall_s=None) for at_s in (9, 15, 21)]) == (
        MachineUse()
    )
    said = machine_use(Told([], ["gone"]), since_s=1.0, until_s=2.0)
    assert said == MachineUse(unobserved=["gone"])


def test_a_gpu_that_does_not_answer_makes_no_sum_of_the_others() -> None:
    use = used(look(12.0, gpu(None, power_w=1.0), gpu(None, power_w=None)))
    assert use.power_w is None


def counted(at_s: float, running: float, lost: float, hit: float, **more: list[float]) -> Look:
    metrics = {"run": [running, running], "wait": [1.0], "lost": [lost], "hit": [hit]}
    return look(at_s, metrics={**metrics, "asked": [at_s * 100], "kv": [], **more})


def test_an_engine_is_counted_over_its_ranks() -> None:
    looks = [
        counted(9.0, 50.0, 0.0, 0.0, old_kv=[0.9, 0.9]),
        counted(12.0, 1.0, 3.0, 30.0, old_kv=[0.2, 0.4]),
        counted(18.0, 3.0, 9.0, 90.0, old_kv=[0.4, 0.6]),
        counted(21.0, 50.0, 12.0, 120.0, old_kv=[0.9, 0.9]),
    ]
    load = engine_load(Told(looks, []), NAMES, since_s=10.0, until_s=20.0)
    assert load is not None
    assert (load.running_mean, load.running_max, load.queued_mean, load.samples) == (4, 6, 1, 2)
    assert [load.kv_usage_mean, load.kv_usage_max] == pytest.approx([0.4, 0.5])
    assert load.preempted == 10
    assert load.prefix_found_share == pytest.approx(0.1)


def test_events_that_nobody_saw_are_not_made_up() -> None:
    looks = [counted(10.5, 1.0, 0.0, 0.0), counted(19.7, 1.0, 9.0, 276.0)]
    load = engine_load(Told(looks, []), NAMES, since_s=10.0, until_s=20.0)
    assert load is not None
    assert load.preempted == 9
    assert load.prefix_found_share == pytest.approx(0.3)
    looks = [counted(14.0, 1.0, 0.0, 0.0), counted(20.0, 1.0, 9.0, 276.0)]
    load = engine_load(Told(looks, []), NAMES, since_s=10.0, until_s=20.0)
    assert load is not None
    assert (load.preempted, load.prefix_found_share) == (None, None)


def test_an_engine_that_does_not_say_who_waits_has_no_load() -> None:
    looks = [look(12.0, metrics={"run": [1.0], "wait": []}), look(15.0, metrics=None)]
    assert engine_load(Told(looks, []), NAMES, since_s=10.0, until_s=20.0) is None
    outside = [counted(21.0, 1.0, 0.0, 0.0)]
    assert engine_load(Told(outside, []), NAMES, since_s=10.0, until_s=20.0) is None
