"""What may be called a winner; the last part plays hundreds of nights to see how often it lies."""

import math
from collections import Counter

import pytest

from tests.nights import (
    BASE,
    BASELINE,
    Night,
    distribution,
    failure,
    objective,
    played,
    record,
    rung,
)
from tuner.definitions.models import Decision
from tuner.measuring.replicas import Replicas
from tuner.verdicts.decision import (
    conclusion,
    finalists,
    noise_by_rung,
    noise_floor,
    reference,
)

OBJECTIVE = objective()


def concluded(night, objective=OBJECTIVE):
    return conclusion(night.records, objective, BASELINE)


def with_winner(gain=0.08, seed=1, **options):
    """A night of calibration, one good candidate, and its confirmation."""
    night = Night(seed, **options)
    night.baseline(3)
    night.launch("search", "good", gain)
    night.launch("search", "other")
    for _ in range(3):
        night.launch("confirm", "good", gain)
        night.baseline()
    return night


def test_a_confirmed_gain_is_a_winner_with_its_interval_in_words():
    found = concluded(with_winner())
    assert found.winner_key == "good"
    assert found.effect is not None
    assert found.effect.low_percent < 8.3 < found.effect.high_percent
    assert found.sentence.startswith(f"{found.effect.gain_percent:+.1f} % (95 % interval +")
    assert found.sentence.endswith(" over the baseline from 3 fresh launches.")


def test_only_fresh_launches_judge_a_finalist():
    night = with_winner(0.0, sd=0.005)
    night.records[3] = record(
        3, "search", "good", [rung(c, 1.5 * rate) for c, rate in BASE.items()]
    )
    found = concluded(night)
    assert finalists(night.records[:5], OBJECTIVE, BASELINE)[0] == "good"
    assert found.winner_key is None
    assert found.sentence.startswith(
        "No configuration beats the baseline beyond noise. The finalist"
    )
    assert "would likely have been found" in found.sentence


def test_a_search_time_gain_alone_crowns_nobody():
    night = Night(1)
    night.baseline(3)
    night.launch("search", "good", 0.5)
    found = concluded(night)
    assert found.winner_key is None
    assert "1 looked faster once, and none was launched afresh" in found.sentence


def test_one_fresh_launch_is_not_enough():
    night = Night(1, sd=0.001)
    night.baseline(5)
    night.launch("search", "good", 0.5)
    night.launch("confirm", "good", 0.5)
    found = concluded(night)
    assert found.winner_key is None
    assert "1 of the 2 fresh launches that a winner needs" in found.sentence


def test_a_machine_that_is_too_noisy_to_decide_is_said_instead_of_an_interval():
    found = concluded(with_winner(0.03, sd=0.5))
    noise = found.noise.score
    assert noise is not None
    assert found.winner_key is None
    assert found.sentence == (
        "No configuration beats the baseline beyond noise. This machine is too noisy to decide:"
        f" launches of one configuration differ by {noise.sd_percent:.0f} % (standard"
        f" deviation), only a gain of {found.detectable_percent:.0f} % would likely have been"
        " found, and 50 launches of each side could not tell whether a gain lies inside the band"
        " of 3 %; see tuner doctor."
    )
    assert found.detectable_percent > 50
    assert str(found.noise).endswith("; too noisy to decide anything small: see tuner doctor")
    calm = concluded(with_winner(0.03, seed=4, sd=0.02))
    assert "too noisy" not in f"{calm.sentence}{calm.noise}"


def test_noise_takes_no_winner_away():
    found = concluded(with_winner(5.0, sd=0.3))
    assert found.winner_key == "good"
    assert "too noisy" not in found.sentence


def test_nothing_faster_is_a_result_of_its_own():
    night = Night(1, sd=0.005)
    night.baseline(4)
    night.launch("search", "slow", -0.2)
    found = concluded(night)
    assert found.sentence.startswith(
        "No configuration beats the baseline beyond noise: none looked faster. A gain of"
    )


def test_without_a_whole_baseline_nothing_is_concluded():
    night = Night(1)
    night.launch("search", "good")
    assert "Nothing can be concluded" in concluded(night).sentence
    assert concluded(Night(1)).winner_key is None
    assert finalists(night.records, OBJECTIVE, BASELINE) == []


def test_a_winner_dies_in_none_of_its_fresh_launches():
    night = with_winner()
    night.launch("confirm", "good", 0.08, reaches=[1, 10], failure=failure("illegal memory access"))
    found = concluded(night)
    assert found.winner_key is None
    assert "trial 11 did not complete: illegal memory access" in found.sentence


@pytest.mark.parametrize(
    ("changes", "wins"),
    [
        ({"action": "once", "phase": "starting"}, True),
        ({"action": "stop-study", "phase": "serving"}, True),
        ({"action": "once", "phase": "serving"}, False),
        ({"action": "never", "phase": "starting"}, False),
    ],
)
def test_the_hosts_faults_are_not_held_against_a_finalist(changes, wins):
    night = with_winner()
    night.launch("confirm", "good", reaches=[], failure=failure(**changes))
    assert (concluded(night).winner_key == "good") is wins


def test_a_launch_that_was_interrupted_says_nothing():
    night = with_winner()
    night.launch("confirm", "good", reaches=[1], outcome="interrupted")
    found = concluded(night)
    assert found.winner_key == "good"
    assert found.finalists[0].trials == (5, 7, 9)


def test_a_winner_keeps_every_limit_every_time():
    night = with_winner()
    slow = rung(1, BASE[1], ttft_ms=distribution(500.0))
    fifth = night.records[5]
    night.records[5] = record(5, "confirm", "good", [slow, *fifth.rungs[1:]])
    found = concluded(night, objective(slos=["ttft_ms p99 <= 200"]))
    assert found.winner_key is None
    assert found.finalists[0].refused == "breaks ttft_ms p99 <= 200 at 1: found 750"


def test_where_the_baseline_breaks_a_limit_keeping_it_wins():
    night = Night(1)

    def launch(kind, key, gain, **timing):
        made = night.launch(kind, key, gain)
        rungs = [rung(int(r.level), r.output_tok_s, **timing) for r in made.rungs]
        night.records[-1] = record(made.number, kind, key, rungs)

    for _ in range(3):
        launch("baseline", BASELINE, 0.0, ttft_ms=distribution(500.0))
    launch("search", "prompt", -0.02)
    launch("search", "late", 0.3, ttft_ms=distribution(500.0))
    for _ in range(2):
        launch("confirm", "prompt", -0.02)
    limits = objective(slos=["ttft_ms p99 <= 200"])
    assert finalists(night.records, limits, BASELINE) == ["prompt"]
    found = concluded(night, limits)
    assert found.winner_key == "prompt"
    assert found.sentence.startswith(
        "Keeps to every limit, where the baseline breaks ttft_ms p99 <= 200 at 1: found 750: -"
    )


def test_a_true_gain_inside_the_band_is_no_winner():
    found = concluded(with_winner(0.01, sd=0.001))
    assert found.winner_key is None
    assert "inside the band of 3 % that counts as none" in found.sentence
    assert "(90 % interval" in found.sentence


def test_an_undecided_finalist_says_what_would_decide():
    found = concluded(with_winner(0.03, seed=4, sd=0.02))
    assert found.winner_key is None
    assert "more launches of each side would decide" in found.sentence


def test_more_than_two_finalists_widen_the_interval():
    night = with_winner()
    for key in ("b", "c"):
        for _ in range(2):
            night.launch("confirm", key, -0.1)
    found = concluded(night)
    assert found.effect is not None
    assert found.effect.confidence == pytest.approx(1 - 2 * 0.05 / 3)
    assert "96.7 % interval" in found.sentence


def test_finalists_come_best_first_and_stay_in_the_order_of_the_search():
    night = Night(1, sd=0.001)
    night.baseline(3)
    for key, gain in [("low", -0.05), ("second", 0.05), ("first", 0.1)]:
        night.launch("search", key, gain)
    night.launch("confirm", "first", -0.1)
    assert finalists(night.records, OBJECTIVE, BASELINE) == ["first", "second"]


def test_a_finalist_that_fresh_launches_refute_makes_room():
    night = Night(1, sd=0.001)
    night.baseline(3)
    night.launch("search", "lucky", 0.1)
    night.launch("search", "second", 0.05)
    for _ in range(2):
        night.launch("confirm", "lucky", 0.0)
    assert finalists(night.records, OBJECTIVE, BASELINE) == ["second"]


def test_no_finalist_failed_broke_a_limit_was_pruned_or_is_the_baseline_again():
    night = Night(1, sd=0.001)
    for _ in range(2):
        night.launch("baseline", BASELINE, effective_key="same")
    night.launch("search", "dead", 0.5, reaches=[1, 10], failure=failure())
    night.launch("search", "pruned", 0.5, outcome="pruned")
    night.launch("search", "twin", 0.5, effective_key="same")
    refusing = [rung(c, 9 * x, requests_failed=50) for c, x in BASE.items()]
    night.records.append(record(5, "search", "refusing", refusing))
    assert finalists(night.records, OBJECTIVE, BASELINE) == []


def test_a_confirmation_of_the_baseline_counts_as_the_baseline():
    night = Night(1)
    night.baseline(2)
    night.launch("confirm", BASELINE)
    assert noise_floor(night.records, OBJECTIVE).control_launches == 3
    assert concluded(night).finalists == ()


def test_the_reference_is_the_baselines_geometric_mean():
    night = Night(sd=0.0)
    night.baseline(2)
    assert reference(night.records, OBJECTIVE, BASELINE) == pytest.approx(BASE)


def test_noise_is_found_for_each_rung_and_for_the_score():
    night = Night(5, sd=0.01, rung_sd=0.02)
    night.baseline(60)
    floor = noise_floor(night.records, OBJECTIVE)
    assert floor.score is not None
    assert floor.score.sd == pytest.approx(math.hypot(0.01, 0.02 / 2), rel=0.3)
    assert floor.rungs[256].sd == pytest.approx(math.hypot(0.01, 0.02), rel=0.3)
    assert noise_by_rung(night.records, OBJECTIVE) == {c: n.sd for c, n in floor.rungs.items()}
    assert str(floor).startswith("launch-to-launch noise 1.")


def test_the_lucky_launch_of_the_search_is_kept_out_of_the_noise():
    night = Night(1, sd=0.001)
    night.baseline(3)
    night.launch("search", "lucky", 0.3)
    for _ in range(2):
        night.launch("confirm", "lucky", 0.0)
    floor = noise_floor(night.records, OBJECTIVE)
    assert floor.score is not None
    assert floor.score.df == 3
    assert floor.score.sd < 0.005


def test_a_cold_first_launch_is_named():
    night = Night(1, sd=0.005)
    night.launch("baseline", BASELINE, -0.15)
    night.baseline(5)
    assert "; trial 0 lies -1" in str(noise_floor(night.records, OBJECTIVE))


def test_one_launch_of_everything_leaves_noise_unknown():
    night = Night(1)
    night.baseline()
    floor = noise_floor(night.records, OBJECTIVE)
    assert floor.score is None
    assert floor.detectable_percent(3) is None
    assert "unknown" in str(floor)


def test_two_baselines_and_one_candidate_are_enough_to_answer():
    night = Night(1)
    night.baseline(2)
    night.launch("search", "good", 0.08)
    night.launch("confirm", "good", 0.08)
    night.launch("confirm", "good", 0.08)
    found = concluded(night)
    assert found.effect is not None
    assert found.effect.df == 2
    assert found.noise.control_launches == 2


def test_identical_launches_are_said_to_be_identical():
    found = concluded(with_winner(sd=0.0))
    assert found.winner_key == "good"
    assert "all repetitions were identical" in found.sentence
    assert "no noise was seen" in str(found.noise)
    assert found.detectable_percent == 0.0


def test_a_ladder_of_one_rung_is_concluded_alike():
    night = with_winner(base={10: 38.0})
    found = concluded(night, objective((10,)))
    assert found.winner_key == "good"


def test_rungs_that_the_baseline_never_reached_do_not_count():
    night = Night(1, sd=0.002)
    for _ in range(3):
        night.launch("baseline", BASELINE, reaches=[1, 10, 256])
    night.launch("search", "good", 0.08)
    night.launch("confirm", "good", 0.08)
    night.launch("baseline", BASELINE, reaches=[1, 10, 256])
    night.launch("confirm", "good", 0.08)
    assert concluded(night).winner_key == "good"


def test_without_the_baseline_between_them_fresh_launches_crown_nobody():
    night = Night(1, sd=0.002)
    for _ in range(4):
        night.launch("baseline", BASELINE)
    night.launch("search", "later", 0.08)
    for _ in range(2):
        night.launch("confirm", "later", 0.08)
    found = concluded(night)
    assert found.winner_key is None
    assert "no launch of the baseline stands between its fresh ones" in found.sentence


def test_nothing_is_said_of_configurations_where_none_was_measured():
    night = Night(1)
    for _ in range(3):
        night.launch("baseline", BASELINE)
    assert concluded(night).sentence.startswith("No verdict: nothing but the baseline")


def test_three_launches_make_no_drift():
    night = Night(1, sd=0.0001)
    for gain in (0.0, 0.01, 0.02):
        night.launch("baseline", BASELINE, gain)
    assert "changed by" not in concluded(night).sentence


def test_failed_launches_of_the_baseline_do_no_harm():
    night = with_winner()
    night.launch("baseline", BASELINE, reaches=[], failure=failure())
    night.launch("baseline", BASELINE, reaches=[1], outcome="interrupted")
    assert concluded(night).winner_key == "good"


def test_a_drift_of_the_baseline_is_said_and_taken_out():
    night = Night(1, sd=0.002, drift=0.003)
    night.baseline(3)
    for i in range(15):
        night.launch("search", f"s{i}")
    key = finalists(night.records, OBJECTIVE, BASELINE)[0]
    for _ in range(3):
        night.launch("confirm", key)
        night.baseline()
    found = concluded(night)
    assert found.winner_key is None
    assert found.effect is not None
    assert found.effect.drift_adjusted
    assert abs(found.effect.gain_percent) < 1.0
    assert "The baseline itself changed by +" in found.sentence
    assert found.drift is not None


# How often does a whole night lie?


SMALL = objective((1, 256), decision=Decision(equivalence_percent=1.0))


def winner(seed, **options):
    night = played(seed, lambda records: finalists(records, SMALL, BASELINE), **options)
    return concluded(night, SMALL).winner_key


def false_winners(nights, **options):
    return sum(winner(seed, **options) is not None for seed in range(nights)) / nights


def test_nights_without_any_gain_crown_a_winner_at_most_as_often_as_stated():
    assert false_winners(1000) < 0.055


def test_nor_do_they_with_more_finalists():
    assert false_winners(300, best=5, rounds=2) < 0.07


def test_nor_do_they_where_finalists_follow_each_other_until_the_budget_ends():
    assert false_winners(100, more=12) < 0.08


@pytest.mark.parametrize("drift", [0.0005, -0.0005, 0.002])
def test_nor_do_they_while_everything_drifts(drift):
    assert false_winners(300, drift=drift) < 0.07


def test_a_gain_of_eight_percent_is_found_through_noise_of_one():
    nights = 200
    found = Counter(winner(seed, gain=math.log(1.08)) for seed in range(1000, 1000 + nights))
    assert found["c0"] / nights > 0.95


def test_intervals_hold_the_truth_as_often_as_they_say():
    nights, held = 500, 0
    for seed in range(nights):
        night = Night(seed, sd=0.01, rung_sd=0.01, base={1: 10.0, 256: 300.0})
        night.baseline(3)
        night.launch("search", "c", 0.05)
        night.baseline(2)
        for _ in range(3):
            night.launch("confirm", "c", 0.05)
            night.baseline()
        effect = concluded(night, SMALL).effect
        held += effect.low_percent < 100 * math.expm1(0.05) < effect.high_percent
    assert 0.92 < held / nights < 0.98


def extrapolated(night: Night, *kinds: str) -> Night:
    """The same launches of the candidate, one server having stood for two."""
    alone = {"replicas": Replicas(launched=1, of=2)}
    night.records = [
        r.model_copy(update=alone) if r.key == "good" and r.kind in kinds else r
        for r in night.records
    ]
    return night


def test_what_was_extrapolated_chooses_a_finalist_and_wins_only_by_full_sets():
    night = extrapolated(with_winner(), "search")
    assert finalists(night.records[:5], OBJECTIVE, BASELINE)[0] == "good"
    assert concluded(night).winner_key == "good"
    guessed = concluded(extrapolated(with_winner(), "search", "confirm"))
    assert guessed.winner_key is None
    (finalist,) = guessed.finalists
    assert finalist.refused == "0 of the 2 fresh launches that a winner needs"
    assert finalist.trials == ()
