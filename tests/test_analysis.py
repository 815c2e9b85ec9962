import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nights import BASE, BASELINE, Night, distribution, failure, objective, record, rung
from tuner.errors import TunerError
from tuner.verdicts.analysis import (
    METRICS,
    Metric,
    pareto_front,
    rungs_frame,
    time_use,
    trials_frame,
)

OBJECTIVE = objective()
SMALL = objective((1, 256))
SPEED, RATE = "tok_s_per_user@1", "output_tok_s@256"


def launch(number, key, speed, rate, kind="search", **changes):
    rungs = [rung(1, speed, tok_s_per_user=speed), rung(256, rate)]
    return record(number, kind, key, rungs, **changes)


def front(records, x=SPEED, y=RATE, objective=SMALL):
    return pareto_front(records, x, y, objective, BASELINE)


def keys(points):
    return [point.key for point in points]


def test_a_launch_is_a_row_with_its_score_and_every_metric():
    night = Night(sd=0.0)
    night.baseline(2)
    night.launch("search", "good", math.log(1.1))
    night.launch("search", "dead", reaches=[1], failure=failure("no memory"))
    frame = trials_frame(night.records, OBJECTIVE, BASELINE).set_index("number")
    assert frame["score"].tolist()[:3] == pytest.approx([1.0, 1.0, 1.1])
    assert frame["score"].isna().tolist() == [False, False, False, True]
    assert frame.loc[2, "output_tok_s@1024"] == pytest.approx(1.1 * BASE[1024])
    assert frame.loc[2, "ttft_ms.p99@10"] == 150.0
    assert frame["output_tok_s@10"].isna().tolist() == [False, False, False, True]


def test_a_rung_is_a_row_too():
    night = Night()
    night.baseline()
    night.launch("search", "dead", reaches=[1], failure=failure())
    frame = rungs_frame(night.records)
    assert frame["level"].tolist() == [1, 10, 256, 1024, 1]
    assert set(METRICS) <= set(frame.columns)
    assert frame["tpot_ms.p50"].isna().all()


def test_tables_of_nothing_have_their_columns():
    assert "output_tok_s" in rungs_frame([]).columns
    assert "ttft_ms.p99@10" in trials_frame([], OBJECTIVE, BASELINE).columns
    assert front([]) == ()
    assert front([], "tok_s_per_user", "tok_s_per_gpu") == ()
    assert time_use([]) == ()


def test_the_front_goes_from_the_best_x_to_the_best_y():
    records = [launch(0, "a", 10, 100), launch(1, "b", 5, 300), launch(2, "c", 4, 200)]
    assert keys(front(records)) == ["a", "b"]


def test_lower_latencies_are_better():
    slow = [rung(1, 10.0, ttft_ms=distribution(200.0)), rung(256, 300.0)]
    quick = [rung(1, 10.0, ttft_ms=distribution(50.0)), rung(256, 200.0)]
    bad = [rung(1, 10.0, ttft_ms=distribution(300.0)), rung(256, 200.0)]
    records = [record(i, "search", k, r) for i, (k, r) in enumerate([("s", slow), ("q", quick)])]
    records.append(record(2, "search", "bad", bad))
    found = front(records, "ttft_ms.p99@1", RATE)
    assert [(p.key, p.x) for p in found] == [("q", 75.0), ("s", 300.0)]


def test_launches_of_one_configuration_are_averaged_before_they_are_compared():
    records = [launch(0, "a", 10, 100), launch(1, "b", 30, 90), launch(2, "b", 10, 50)]
    found = front(records)
    assert [(p.key, p.trials, p.x, p.y) for p in found] == [
        ("b", (1, 2), 20.0, 70.0),
        ("a", (0,), 10.0, 100.0),
    ]


def test_only_completed_launches_within_all_limits_are_points():
    refusing = [rung(1, 99, tok_s_per_user=99, requests_failed=50), rung(256, 999)]
    records = [
        launch(0, "a", 10, 100),
        launch(1, "b", 20, 200, outcome="pruned"),
        launch(2, "c", 20, 200, failure=failure()),
        record(3, "search", "d", refusing),
    ]
    assert keys(front(records)) == ["a"]


def test_a_point_that_does_not_show_a_metric_is_left_out():
    records = [launch(0, "a", 10, 100)]
    assert front(records, "tpot_ms.p50@1", RATE) == ()


def test_the_score_is_a_metric():
    records = [
        launch(0, BASELINE, 10, 100, kind="baseline"),
        launch(1, "a", 20, 100),
        launch(2, "b", 9, 110),
    ]
    found = front(records, "score", RATE)
    assert [(p.key, p.level) for p in found] == [("a", None), ("b", None)]
    assert found[0].x == pytest.approx(math.sqrt(2))


def test_metrics_without_a_level_give_a_point_for_each_rung():
    records = [launch(0, "a", 10, 100), launch(1, "b", 12, 90)]
    found = front(records, "tok_s_per_user", "tok_s_per_gpu")
    assert [(p.key, p.level) for p in found] == [("b", 1), ("a", 256)]


@pytest.mark.parametrize(
    ("x", "message", "hint"),
    [
        ("tok_s_per_usr@1", "did you mean 'tok_s_per_user'?", "a latency such as ttft_ms.p99"),
        ("ttft_ms@1", "unknown metric 'ttft_ms@1'", "a latency such as ttft_ms.p99"),
        ("nonsense@@1", "unknown metric 'nonsense@@1'", "known are"),
        ("tok_s_per_user@7", "'tok_s_per_user@7' is measured nowhere", "the ladder has 1, 256"),
        ("score@1", "'score@1' is measured nowhere", "one number for the whole ladder"),
        ("tok_s_per_user", "has a number at every rung", "such as tok_s_per_user@1"),
    ],
)
def test_a_metric_that_cannot_be_shown_says_what_can(x, message, hint):
    with pytest.raises(TunerError) as raised:
        front([], x, RATE)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_every_metric_can_be_asked_for():
    for name in METRICS:
        assert Metric.parse(f"{name}@256", SMALL).column == f"{name}@256"


numbers = st.integers(1, 6).map(float)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), st.booleans())
def test_the_front_holds_exactly_what_nothing_beats(pairs, low_is_better):
    """Against the definition, over coarse values so that ties are common."""
    records = [
        record(i, "search", f"k{i}", [rung(1, x, ttft_ms=distribution(x)), rung(256, y)])
        for i, (x, y) in enumerate(pairs)
    ]
    x_name, sign = ("ttft_ms.p50@1", -1.0) if low_is_better else ("output_tok_s@1", 1.0)

    def beats(a, b):
        return a != b and sign * a[0] >= sign * b[0] and a[1] >= b[1]

    expected = {f"k{i}" for i, p in enumerate(pairs) if not any(beats(q, p) for q in pairs)}
    found = front(records, x_name, RATE)
    assert set(keys(found)) == expected
    assert len(found) == len(expected)
    assert [sign * p.x for p in found] == sorted((sign * p.x for p in found), reverse=True)


def test_time_is_cut_by_phase_by_kind_and_by_outcome():
    records = [
        record(0, "baseline", "b", duration_s=100.0, phase_s={"start": 60.0, "load": 30.0}),
        record(1, "search", "s", duration_s=50.0, phase_s={"start": 50.0}, failure=failure()),
    ]
    found = [(u.by, u.name, u.launches, u.seconds, round(u.share, 3)) for u in time_use(records)]
    assert found == [
        ("phase", "start", 2, 110.0, 0.733),
        ("phase", "load", 1, 30.0, 0.2),
        ("phase", "other", 2, 10.0, 0.067),
        ("kind", "baseline", 1, 100.0, 0.667),
        ("kind", "search", 1, 50.0, 0.333),
        ("outcome", "completed", 1, 100.0, 0.667),
        ("outcome", "failed", 1, 50.0, 0.333),
    ]


def test_phases_never_leave_less_than_nothing():
    uses = time_use([record(0, "search", "s", duration_s=1.0, phase_s={"start": 1.001})])
    assert min(use.seconds for use in uses) == 0.0
