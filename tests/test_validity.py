"""Each rule says what it found and what it allows; an honest window raises no doubt."""

from typing import Any

import pytest

from tuner.definitions.slo import Slo
from tuner.measuring import client_rules, machine_rules, open_rules, window_rules
from tuner.measuring.enough import too_few
from tuner.measuring.machine import MachineUse
from tuner.measuring.measurement import Distribution, RequestTiming, RungMeasurement
from tuner.measuring.observed import Doubt, Observed
from tuner.measuring.observing import observe
from tuner.measuring.open_load import OpenLoad
from tuner.measuring.validity import RULES, TRIAL_RULES, doubts, trial_doubts


def distribution(count: int = 500) -> Distribution:
    return Distribution(count=count, mean=1, p50=1, p90=1, p95=1, p99=1, max=1)


def rung(**other: Any) -> RungMeasurement:
    values: dict[str, Any] = {
        "concurrency": 4,
        "window_s": 10.0,
        "output_tok_s": 100.0,
        "input_tok_s": 100.0,
        "total_tok_s": 200.0,
        "tok_s_per_gpu": 100.0,
        "tok_s_per_user": 25.0,
        "requests_completed": 500,
        "requests_failed": 0,
        "ttft_ms": distribution(),
        "tpot_ms": distribution(),
        "itl_ms": distribution(),
        "e2e_ms": distribution(),
    }
    return RungMeasurement(**values | other)


def seen(**other: Any) -> Observed:
    values: dict[str, Any] = {
        "in_flight": 4.0,
        "cycle_ms": 1000.0,
        "late_ms": 1.0,
        "late_p99_ms": 4.0,
        "short": 0,
        "cpu_share": 0.2,
        "wait_share": 0.01,
        "slice_tok_s": [100.0, 101.0, 99.0, 100.0, 100.0, 100.0, 99.0, 101.0, 100.0, 100.0],
    }
    return Observed(**values | other)


def only(measured: RungMeasurement, observed: Observed, *slos: str) -> Doubt:
    (doubt,) = doubts(measured, observed, [Slo.parse(text) for text in slos])
    return doubt


def request(stream: int, index: int, sent_s: float, done_s: float | None, **more: Any):
    values: dict[str, Any] = {
        "events": ((sent_s + 0.1, 1), (sent_s + 0.2, 9)),
        "input_tokens": 8,
        "output_tokens": 10,
        "requested_tokens": 10,
    }
    values |= more
    return RequestTiming(stream=stream, index=index, sent_s=sent_s, done_s=done_s, **values)


def test_an_honest_window_raises_no_doubt():
    assert doubts(rung(), seen()) == []
    assert doubts(rung(), seen(cpu_share=None, wait_share=None, late_ms=None, cycle_ms=None)) == []


def test_failed_requests():
    doubt = only(rung(requests_completed=95, requests_failed=5, first_error="status 503"), seen())
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("errors", True, 0.05, 0.01)
    assert str(doubt) == (
        "at 4: 5 of 100 requests failed (5.0%, at most 1% may), the first with: status 503. Read "
        "the server's log; offer less load or raise its limits."
    )
    assert not only(rung(requests_failed=1, first_error="reset"), seen()).voids


def test_where_every_request_failed_nothing_else_is_said():
    broken = rung(requests_completed=0, requests_failed=8, first_error="refused", ttft_ms=None)
    assert only(broken, seen(in_flight=0.1)).rule == "errors"


def test_too_few_requests():
    doubt = only(rung(requests_completed=1), seen())
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("requests", True, 1.0, 2.0)
    assert doubt.said == ("1 requests came to their end inside a window of 10 s, at least 2 must")
    assert doubt.advice == "Raise window_s in the objective, or ask for fewer output_tokens."


@pytest.mark.parametrize(
    ("slo", "count", "needed"),
    [("p50", 1, 2), ("p90", 9, 10), ("p95", 19, 20), ("p99", 99, 100)],
)
def test_an_slo_needs_values_beyond_its_percentile(slo, count, needed):
    few, enough = (rung(tpot_ms=distribution(n)) for n in (count, needed))
    doubt = only(few, seen(), f"tpot_ms {slo} <= 50")
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == (
        *("percentiles", True, count, needed),
    )
    assert doubt.said == f"tpot_ms {slo} is of {count} values, an SLO on it needs {needed}"
    assert doubts(enough, seen(), [Slo.parse(f"tpot_ms {slo} <= 50")]) == []


def test_slos_on_means_and_rates_need_no_tail():
    slos = [Slo.parse("tpot_ms mean <= 50"), Slo.parse("output_tok_s >= 1")]
    assert doubts(rung(tpot_ms=distribution(2)), seen(), slos) == []


def test_a_percentile_that_is_only_shown_is_a_remark():
    doubt = only(rung(ttft_ms=distribution(99)), seen())
    assert (doubt.rule, doubt.voids) == ("percentiles", False)
    assert doubt.said == "p99 of TTFT is of 99 values, 100 are needed"


def test_answers_that_are_shorter_than_asked():
    doubt = only(rung(), seen(short=50))
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("output", True, 0.1, 0.01)
    assert doubt.said == "50 of 500 answers were shorter than asked (10.0%, at most 1% may)"
    assert doubts(rung(), seen(short=5)) == []


def test_streams_that_ask_again_too_late():
    doubt = only(rung(), seen(late_ms=25.0, late_p99_ms=90.0))
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("lateness", True, 0.025, 0.01)
    assert doubt.said == (
        "streams asked again 25 ms late on average (p99 90 ms), 2.5% of a request's 1000 ms, at "
        "most 1% may be"
    )


def test_a_client_without_room():
    doubt = only(rung(), seen(cpu_share=0.97))
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("client_cpu", True, 0.97, 0.95)
    assert doubt.said == "the client used 97% of its core, 95% are its limit"
    assert not only(rung(), seen(cpu_share=0.93)).voids
    assert only(rung(), seen(cpu_share=0.93, stamped=False)).voids


def test_a_client_that_waits_for_a_core():
    doubt = only(rung(), seen(wait_share=0.4))
    assert (doubt.rule, doubt.voids) == ("client_wait", True)
    assert doubt.said == ("the client waited for a core in 40% of the window, at most 25% may be")
    assert not only(rung(), seen(wait_share=0.2)).voids
    assert only(rung(), seen(wait_share=0.2, stamped=False)).voids


def test_a_night_goes_on_beside_what_else_runs():
    (remark,) = trial_doubts(rung(), seen(wait_share=0.6))
    assert (remark.rule, remark.voids) == ("client_wait", False)
    (void,) = trial_doubts(rung(), seen(wait_share=0.8))
    assert (void.rule, void.voids, void.limit) == ("client_wait", True, 0.75)


def test_a_client_that_reads_several_events_at_once():
    """Their gaps are guesses, whoever sent or read them so."""
    (void,) = doubts(rung(), seen(together=0.5), [Slo.parse("itl_ms p99 <= 50")])
    assert (void.rule, void.voids) == ("together", True)
    assert doubts(rung(), seen(together=0.5), [Slo.parse("tpot_ms p99 <= 50")]) == []
    assert doubts(rung(), seen(together=0.006), [Slo.parse("itl_ms p99 <= 50")])
    assert doubts(rung(), seen(together=0.02), [Slo.parse("itl_ms p95 <= 50")]) == []
    remark, cause = doubts(rung(), seen(together=0.5, cpu_share=0.7))
    assert (cause.rule, remark.rule, cause.voids, remark.voids) == (
        *("together", "client_cpu", False, False),
    )
    void, _ = doubts(rung(), seen(together=0.5, cpu_share=0.7), [Slo.parse("itl_ms p99 <= 50")])
    assert (void.rule, void.voids, void.found, void.limit) == ("together", True, 0.5, 0.005)


def test_fewer_requests_under_way_than_the_rung_is_named_for():
    doubt = only(rung(), seen(in_flight=3.5))
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("reached", True, 3.5, 3.8)
    assert doubt.said == "3.5 requests were under way on average, at least 3.8 must"
    assert doubts(rung(streams=2, factor=2.0), seen(in_flight=2.0)) == []


def test_what_is_missing_after_failures_is_the_servers_own_doing():
    (doubt,) = doubts(rung(requests_failed=1, first_error="reset"), seen(in_flight=3.5))
    assert doubt.rule == "errors"


def test_a_window_that_opened_before_the_server_had_settled():
    doubt = only(rung(), seen(stable=False, warmup_s=20.0))
    assert (doubt.rule, doubt.voids, doubt.found) == ("warm_up", True, 20.0)
    assert doubt.said == (
        "throughput had hardly begun or still rose when the window opened, after 20 s of warm-up"
    )


def test_a_ramp_over_the_whole_window_is_drift():
    """Its halves have a large spread of their own, which is no noise."""
    doubt = only(rung(), seen(slice_tok_s=[90.0 + 2 * n for n in range(10)]))
    assert (doubt.rule, doubt.voids) == ("drift", True)
    assert doubt.found == pytest.approx(0.106, abs=0.001)


def test_a_server_that_did_not_hear_all_that_it_was_to_know():
    doubt = only(rung(), seen(primers=64, primed=58))
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("priming", True, 58, 64)
    assert doubt.said == (
        "58 of 64 prompts that the server was to know were answered before the load"
    )
    assert doubts(rung(), seen(primers=64, primed=64)) == []


def test_a_server_that_said_nothing_in_half_of_the_window():
    doubt = only(rung(), seen(slice_tok_s=[0.0] * 5 + [199.0] * 5))
    assert (doubt.rule, doubt.voids, doubt.found) == ("drift", True, 1.0)
    assert doubt.said == "the second half of the window gave 199 tok/s, the first none"
    stopped = only(rung(), seen(slice_tok_s=[199.0] * 5 + [0.0] * 5))
    assert (stopped.rule, stopped.voids, stopped.found) == ("drift", True, -1.0)


def test_a_server_that_still_warms_up():
    slices = [50.0, 60.0, 55.0, 58.0, 62.0, 99.0, 100.0, 101.0, 100.0, 100.0]
    doubt = only(rung(), seen(slice_tok_s=slices))
    assert (doubt.rule, doubt.voids, doubt.limit) == ("drift", True, 0.05)
    assert doubt.said == (
        "the second half of the window gave 100 tok/s, the first 57 (+75.4%, at most 5% may be "
        "beyond noise)"
    )
    slower = only(rung(), seen(slice_tok_s=slices[::-1]))
    assert slower.found == pytest.approx(57 / 100 - 1)


@pytest.mark.parametrize(
    "slices",
    [
        [80.0, 120.0, 90.0, 110.0, 100.0, 110.0, 90.0, 130.0, 100.0, 110.0],
        [100.0, 100.0, 100.0, 100.0, 100.0, 104.0, 104.0, 104.0, 104.0, 104.0],
        [0.0] * 10,
        [],
    ],
)
def test_noise_and_small_differences_are_no_drift(slices):
    assert doubts(rung(), seen(slice_tok_s=slices)) == []


def test_what_voids_comes_first():
    found = doubts(rung(ttft_ms=distribution(99)), seen(cpu_share=0.99, in_flight=1.0))
    assert [doubt.voids for doubt in found] == [True, True, False]


def test_a_gpu_that_is_slowed_down():
    doubt = only(rung(machine=MachineUse(throttled={"hw_thermal": 0.4, "sw_thermal": 0.1})), seen())
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("throttled", True, 0.4, 0.05)
    assert (
        doubt.said == "a GPU was slowed down (hw_thermal) in 40% of the window, at most 5% may be"
    )
    assert not only(rung(machine=MachineUse(throttled={"power_brake": 0.04})), seen()).voids
    assert doubts(rung(machine=MachineUse(throttled={"power_cap": 1.0})), seen()) == []


def test_a_gpu_that_is_shared():
    doubt = only(rung(machine=MachineUse(foreign_pids=[17, 18])), seen())
    assert (doubt.rule, doubt.voids, doubt.found, doubt.limit) == ("shared", True, 2, 0)
    assert doubt.said == "2 foreign processes computed on its GPUs (pid 17, 18), none may"


@pytest.mark.parametrize(
    ("use", "voids", "said"),
    [
        ({"swapped_bytes_s": 3e6}, True, "the host swapped 3.0 MB/s, at most 1 may be"),
        (
            {"memory_stall_share": 0.2, "available_memory_mb": 1.0, "host_memory_mb": 1000.0},
            True,
            "tasks waited for memory in 20% of the window, at most 5% may be",
        ),
        (
            {"available_memory_mb": 10.0, "host_memory_mb": 1000.0},
            False,
            "only 10 MB of the host's memory were left (1.0%)",
        ),
    ],
)
def test_a_host_without_memory(use, voids, said):
    doubt = only(rung(machine=MachineUse(**use)), seen())
    assert (doubt.rule, doubt.voids, doubt.said) == ("memory", voids, said)


def test_what_nobody_observed_raises_no_doubt():
    assert doubts(rung(machine=MachineUse()), seen()) == []
    fine = MachineUse(
        swapped_bytes_s=0.0,
        memory_stall_share=0.01,
        available_memory_mb=500.0,
        host_memory_mb=1000.0,
    )
    assert doubts(rung(machine=fine), seen()) == []


def test_a_trial_is_not_void_for_what_its_configuration_does():
    """Errors and short answers refuse a configuration; a rung that saw no request end is scored."""
    broken = rung(requests_completed=95, requests_failed=5, first_error="status 503")
    assert trial_doubts(broken, seen(short=50)) == []
    assert trial_doubts(rung(requests_completed=0), seen()) == []
    assert trial_doubts(rung(), seen(late_ms=25.0)) == []
    assert [d.rule for d in trial_doubts(rung(), seen(late_ms=35.0))] == ["lateness"]


def test_every_rule_is_asked():
    rules = {
        name
        for module in (client_rules, open_rules, window_rules, machine_rules)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__annotations__", {}).get("return") == list[Doubt]
    }
    assert {rule.__name__ for rule in {*RULES, *TRIAL_RULES}} == rules


@pytest.mark.parametrize(
    ("slo", "values", "few"),
    [
        ("ttft_ms p99 <= 500", {"count": 3, "p50": 9000.0}, 3),
        ("ttft_ms p99 <= 500", {"count": 10, "p50": 9000.0}, None),
        ("ttft_ms p99 <= 500", {"count": 99, "p50": 499.0}, 99),
        ("ttft_ms p99 <= 500", {"count": 100, "p50": 1.0}, None),
        ("ttft_ms p50 <= 500", {"count": 2, "p50": 1.0}, None),
        ("ttft_ms p99 >= 500", {"count": 50, "p50": 1.0}, 50),
        ("output_tok_s >= 5", {"count": 1}, None),
    ],
)
def test_too_few_values_neither_keep_nor_break_a_limit(slo, values, few):
    """But half of ten or more beyond it break it: no tail could bring them back."""
    ttft = distribution().model_copy(update=values)
    assert too_few(Slo.parse(slo), rung(ttft_ms=ttft)) == few


def test_what_outlasts_its_limit_breaks_it():
    """No request came to its end within 10 s: none took less than that."""
    assert too_few(Slo.parse("e2e_ms p99 <= 9000"), rung(e2e_ms=None)) is None
    assert too_few(Slo.parse("e2e_ms p99 <= 11000"), rung(e2e_ms=None)) == 0
    assert too_few(Slo.parse("ttft_ms p99 <= 9000"), rung(ttft_ms=None)) == 0


def test_what_the_client_sees_of_itself_in_a_window():
    timings = [
        request(0, 0, 0.0, 1.0),
        request(0, 1, 1.01, 2.01),
        request(0, 2, 2.03, None),
        request(1, 0, 0.5, 1.5, error="reset"),
        request(1, 1, 1.8, 2.5, output_tokens=4),
    ]
    timings.append(request(2, 0, 1.0, 1.5))
    found = observe(timings, start_s=1.0, end_s=3.0, cpu_share=0.1, wait_share=0.2)
    assert found.in_flight == pytest.approx((1.0 + 0.97 + 0.5 + 0.7 + 0.5) / 2)
    assert found.late_ms == pytest.approx((10 + 20) / 2)
    assert found.late_p99_ms == pytest.approx(20)
    assert found.cycle_ms == pytest.approx((1010 + 1020) / 2)
    assert found.short == 1
    assert (found.cpu_share, found.wait_share) == (0.1, 0.2)
    # tokens of the failed request do not count, those before the window neither
    assert sum(found.slice_tok_s) * 0.2 == pytest.approx(4 * 10)


def test_a_window_without_length_or_requests_is_observed_too():
    assert observe([], start_s=1.0, end_s=1.0).slice_tok_s == []
    empty = observe([], start_s=0.0, end_s=1.0)
    assert (empty.in_flight, empty.late_ms, empty.cycle_ms, empty.short) == (0, None, None, 0)


def test_a_rehearsal_forgives_a_late_stream():
    timings = [request(0, 0, 0.0, 1.0), request(0, 1, 1.01, 2.01), request(0, 2, 2.03, 3.0)]
    found = observe(timings, start_s=0.5, end_s=3.0, forgiven_s=0.015)
    assert found.late_ms == pytest.approx((0 + 5) / 2)
    assert found.in_flight == pytest.approx((2.5 - 0.005) / 2.5)


def test_events_of_one_read_are_counted():
    events = ((1.0, 1), (1.1, 1), (1.1, 1), (1.2, 1), (5.0, 1))
    found = observe([request(0, 0, 0.9, None, events=events)], start_s=0.0, end_s=2.0)
    assert found.together == pytest.approx(1 / 3)


def test_a_server_that_lets_too_few_in_has_itself_to_blame():
    """Of an open loop on trial: its throughput and its latencies say it, and the load was sent."""
    load = OpenLoad(
        due=100,
        due_rps=10.0,
        sent_rps=8.0,
        answered_rps=8.0,
        late_out=20,
        unsent=20,
        late_ms=1.0,
        late_p99_ms=2.0,
        late_share=0.001,
        under_way_first=10.0,
        under_way_last=10.0,
        growth_rps=0.0,
    )
    measured = rung(concurrency=None, request_rate=10.0, open_load=load)
    assert "offered" in [doubt.rule for doubt in doubts(measured, seen()) if doubt.voids]
    assert not [doubt for doubt in trial_doubts(measured, seen()) if doubt.voids]
    kept_waiting = measured.model_copy(update={"open_load": load.model_copy(update={"unsent": 0})})
    assert [d.rule for d in trial_doubts(kept_waiting, seen()) if d.voids] == ["offered"]
