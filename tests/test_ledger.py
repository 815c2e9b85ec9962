import re

import pytest

from tests.nights import BASELINE, Night, failure, objective
from tuner.definitions.models import Hypothesis
from tuner.measuring.replicas import Replicas
from tuner.verdicts.ledger import ledger, null_results, unsettled_hypotheses

OBJECTIVE = objective()
GRAPH_BREAK = "torch.compile(fullgraph=True): graph break in FlashInfer's FP4 JIT"
GROUPED_GEMM = "Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal"


def hypothesis(name, gain=(10.0, 20.0), **changes):
    return Hypothesis(
        id=name, change={name: True}, claim=f"{name} is faster", gain_percent=gain
    ).model_copy(update=changes)


def rows(night, *hypotheses):
    found = ledger(night.records, hypotheses, OBJECTIVE, BASELINE)
    assert [row.id for row in found] == [h.id for h in hypotheses]
    return found


def row(night, stated):
    (found,) = rows(night, stated)
    return found


def night(seed=1, baselines=5, sd=0.004):
    made = Night(seed, sd=sd)
    made.baseline(baselines)
    return made


def test_a_campaign_is_told_in_the_words_of_those_who_ran_it():
    played = night(seed=3)
    broken = failure(GRAPH_BREAK, kind="compile_fail", phase="capturing")
    played.launch("hypothesis", "k1", hypothesis="graphs", reaches=[], failure=broken)
    played.launch("hypothesis", "k2", hypothesis="mscclpp")
    played.launch("hypothesis", "k3", hypothesis="overlap")
    died = failure(GROUPED_GEMM, phase="serving")
    losses = {1: -0.10, 10: -0.14}
    played.launch("hypothesis", "k4", losses, hypothesis="ep8", reaches=[1, 10], failure=died)
    played.baseline()

    graphs, mscclpp, overlap, ep8, compiled = rows(
        played,
        hypothesis("graphs"),
        hypothesis("mscclpp", attacks="communication"),
        hypothesis("overlap", attacks="communication", depends_on=["mscclpp"]),
        hypothesis("ep8", (30.0, 80.0), attacks="expert-gemm"),
        hypothesis("torch-compile"),
    )

    assert graphs.verdict == "blocked"
    assert graphs.words == f"blocked: dies while capturing: {GRAPH_BREAK}"
    for nothing in (mscclpp, overlap):
        assert nothing.verdict == "no effect"
        assert re.match(r"no effect beyond noise: .* \(90 % interval ", nothing.words)
        assert nothing.words.endswith(
            " over the baseline from one launch, inside the band of 3 % that counts as none;"
            " 10 to 20 % was expected"
        )
    assert ep8.verdict == "crashes"
    assert ep8.dies_at == 256
    assert [(r.level, r.judgement) for r in ep8.rungs] == [
        (1, "regresses"),
        (10, "regresses"),
    ]
    assert ep8.words == (
        f"regresses at 1 ({ep8.rungs[0].effect.gain_percent:+.1f} %) and"
        f" 10 ({ep8.rungs[1].effect.gain_percent:+.1f} %), dies at 256: {GROUPED_GEMM}"
    )
    assert (compiled.verdict, compiled.words) == ("not run", "not run")
    assert null_results([graphs, mscclpp, overlap, ep8]) == [
        "mscclpp, overlap did nothing in one launch each:"
        " communication seems not to be where the time goes."
    ]


@pytest.mark.parametrize(
    ("fresh", "said"),
    [
        ([2, 2], "a (2 launches), b (2 launches) did nothing: moe is not where the time goes."),
        ([2, 0], "a (2 launches), b (1 launch) did nothing: moe seems not to be where the time"
         " goes."),
    ],
)  # fmt: skip
def test_what_nulls_locate_says_on_how_many_launches_it_rests(fresh, said):
    played = night()
    for name, times in zip("ab", fresh, strict=True):
        played.launch("hypothesis", name, hypothesis=name)
        for _ in range(times):
            played.launch("confirm", name)
    found = rows(played, hypothesis("a", attacks="moe"), hypothesis("b", attacks="moe"))
    assert null_results(found) == [said]


def test_a_gain_beyond_noise_helps():
    played = night()
    played.launch("hypothesis", "k", 0.15, hypothesis="graphs")
    found = row(played, hypothesis("graphs"))
    assert found.verdict == "helps"
    assert found.words.startswith("helps: +1")
    assert found.words.endswith("over the baseline from one launch; 10 to 20 % was expected")
    assert found.trials == (5,)


def test_a_loss_beyond_noise_regresses():
    played = night()
    played.launch("hypothesis", "k", -0.15, hypothesis="graphs")
    assert row(played, hypothesis("graphs")).verdict == "regresses"


def test_what_cannot_be_told_says_how_many_launches_would():
    played = night(sd=0.03)
    played.launch("hypothesis", "k", hypothesis="graphs")
    found = row(played, hypothesis("graphs"))
    assert found.verdict == "inconclusive"
    assert "more launches of each side would decide" in found.words
    assert unsettled_hypotheses(played.records, [hypothesis("graphs")], OBJECTIVE) == ["k"]


def test_what_is_settled_is_not_launched_again():
    played = night()
    played.launch("hypothesis", "k", 0.15, hypothesis="graphs")
    played.launch("hypothesis", "dead", hypothesis="ep8", reaches=[], failure=failure())
    stated = [hypothesis("graphs"), hypothesis("ep8"), hypothesis("never")]
    assert unsettled_hypotheses(played.records, stated, OBJECTIVE) == []


def test_one_launch_of_the_baseline_settles_nothing_and_does_no_harm():
    played = night(baselines=1)
    played.launch("hypothesis", "k", 0.15, hypothesis="graphs")
    found = row(played, hypothesis("graphs"))
    assert found.verdict == "inconclusive"
    assert "nothing was launched twice" in found.words
    assert unsettled_hypotheses(played.records, [hypothesis("graphs")], OBJECTIVE) == []


def test_two_launches_of_the_baseline_and_one_of_the_hypothesis_give_an_interval():
    played = night(baselines=2)
    played.launch("hypothesis", "k", hypothesis="graphs")
    found = row(played, hypothesis("graphs"))
    assert found.effect is not None
    assert found.effect.df == 1
    assert found.effect.low_percent is not None


def test_without_a_baseline_nothing_is_measured_against():
    played = Night()
    played.launch("hypothesis", "k", hypothesis="graphs")
    found = row(played, hypothesis("graphs"))
    assert found.verdict == "inconclusive"
    assert "it and the baseline were not both measured" in found.words


def test_rungs_that_pull_against_each_other_are_said():
    played = night()
    played.launch("hypothesis", "k", {1: -0.12, 10: 0.0, 256: 0.0, 1024: 0.12}, hypothesis="big")
    found = row(played, hypothesis("big"))
    assert found.verdict == "no effect"
    assert "; regresses at 1 (-1" in found.words
    assert ", helps at 1024 (+1" in found.words


def test_a_blocked_parent_makes_all_below_it_moot():
    played = night()
    played.launch("hypothesis", "k", hypothesis="a", reaches=[], failure=failure("it broke"))
    found = rows(
        played,
        hypothesis("c", depends_on=["b"]),
        hypothesis("a"),
        hypothesis("b", depends_on=["a"]),
    )
    assert [r.verdict for r in found] == ["moot", "blocked", "moot"]
    assert found[0].words == "moot: it builds on b, which is moot"


def test_a_child_of_a_parent_that_helps_is_measured_over_the_parent():
    played = night()
    played.launch("hypothesis", "k1", 0.2, hypothesis="parent")
    played.launch("hypothesis", "k2", 0.2, hypothesis="child")
    parent, child = rows(played, hypothesis("parent"), hypothesis("child", depends_on=["parent"]))
    assert (parent.verdict, parent.over) == ("helps", "the baseline")
    assert (child.verdict, child.over) == ("no effect", "parent")
    assert "over parent" in child.words


def test_a_child_of_a_parent_without_effect_is_measured_over_the_baseline():
    played = night()
    played.launch("hypothesis", "k1", hypothesis="parent")
    played.launch("hypothesis", "k2", 0.2, hypothesis="child")
    _, child = rows(played, hypothesis("parent"), hypothesis("child", depends_on=["parent"]))
    assert (child.verdict, child.over) == ("helps", "the baseline")


def test_fresh_launches_judge_a_hypothesis_where_there_are_two():
    played = night()
    played.launch("hypothesis", "k", 0.5, hypothesis="lucky")
    played.launch("confirm", "k")
    assert row(played, hypothesis("lucky")).trials == (5, 6)
    played.launch("confirm", "k")
    found = row(played, hypothesis("lucky"))
    assert found.trials == (6, 7)
    assert found.verdict == "no effect"


def test_the_baselines_own_arguments_have_no_effect():
    played = night()
    played.launch(
        "hypothesis", "k", hypothesis="dead", reaches=[], outcome="duplicate", duplicate_of=0
    )
    found = row(played, hypothesis("dead"))
    assert found.verdict == "no effect"
    assert found.words == "no effect: the server runs with the baseline's own arguments (trial 0)"


def test_a_duplicate_of_another_launch_takes_over_its_numbers():
    played = night()
    played.launch("search", "k1", 0.15)
    played.launch(
        "hypothesis", "k2", hypothesis="twin", reaches=[], outcome="duplicate", duplicate_of=5
    )
    found = row(played, hypothesis("twin"))
    assert (found.verdict, found.trials) == ("helps", (5,))


def test_a_duplicate_of_something_unknown_is_not_measured():
    played = night()
    played.launch(
        "hypothesis", "k", hypothesis="twin", reaches=[], outcome="duplicate", duplicate_of=77
    )
    assert row(played, hypothesis("twin")).verdict == "not run"


def test_output_that_is_wrong_is_a_verdict_of_its_own():
    played = night()
    wrong = failure("first token differs", kind="wrong_output", phase="serving")
    played.launch("hypothesis", "k", 0.5, hypothesis="fast", failure=wrong)
    found = row(played, hypothesis("fast"))
    assert (found.verdict, found.words) == ("wrong output", "wrong output: first token differs")


def test_one_failure_of_the_host_is_no_verdict_two_are():
    played = night()
    lost = failure("address already in use", action="once", phase="starting")
    played.launch("hypothesis", "k", hypothesis="graphs", reaches=[], failure=lost)
    found = row(played, hypothesis("graphs"))
    assert (found.verdict, found.words) == ("not run", "not measured: address already in use")
    played.launch("hypothesis", "k", hypothesis="graphs", reaches=[], failure=lost)
    assert row(played, hypothesis("graphs")).verdict == "blocked"


def test_a_failure_of_the_host_is_forgotten_once_the_launch_is_repeated():
    played = night()
    lost = failure("address already in use", action="once", phase="starting")
    played.launch("hypothesis", "k", hypothesis="graphs", reaches=[], failure=lost)
    played.launch("hypothesis", "k", 0.15, hypothesis="graphs")
    assert row(played, hypothesis("graphs")).verdict == "helps"


def test_a_crash_that_comes_and_goes_is_a_crash():
    played = night()
    played.launch("hypothesis", "k", 0.15, hypothesis="graphs")
    died = failure("watchdog timeout", action="once", phase="serving")
    played.launch("hypothesis", "k", 0.15, hypothesis="graphs", reaches=[1], failure=died)
    found = row(played, hypothesis("graphs"))
    assert found.verdict == "crashes"
    assert found.words.endswith("dies at 10 in 1 of 2 launches: watchdog timeout")


@pytest.mark.parametrize("phase", ["ready", "serving"])
def test_a_death_in_service_before_the_first_rung_is_a_crash_at_it(phase):
    played = night()
    played.launch("hypothesis", "k", hypothesis="x", reaches=[], failure=failure(phase=phase))
    found = row(played, hypothesis("x"))
    assert (found.verdict, found.dies_at, found.words) == ("crashes", 1, "dies at 1: it broke")


def test_a_death_after_a_rung_is_a_crash_whatever_the_phase():
    played = night()
    died = failure(phase="stopping")
    played.launch("hypothesis", "k", hypothesis="x", reaches=[1], failure=died)
    found = row(played, hypothesis("x"))
    assert (found.verdict, found.dies_at) == ("crashes", 10)


def test_an_interrupted_launch_is_not_measured():
    played = night()
    played.launch("hypothesis", "k", hypothesis="x", reaches=[1], outcome="interrupted")
    found = row(played, hypothesis("x"))
    assert (found.verdict, found.words) == ("not run", "not measured: trial 5 was interrupted")


def test_one_null_or_one_that_moved_something_locates_nothing():
    played = night()
    for name, gain in [("a", 0.0), ("b", 0.0), ("c", 0.2), ("d", 0.0)]:
        played.launch("hypothesis", name, gain, hypothesis=name)
    found = rows(
        played,
        hypothesis("a", attacks="memory"),
        hypothesis("b", attacks="memory"),
        hypothesis("c", attacks="memory"),
        hypothesis("d", attacks="attention"),
    )
    assert [r.verdict for r in found] == ["no effect", "no effect", "helps", "no effect"]
    assert null_results(found) == []


def test_no_verdict_rests_on_a_server_that_stood_for_others():
    played = night()
    played.launch("search", "k", 0.3)
    stated = hypothesis("graphs")
    played.launch("hypothesis", "h", hypothesis="graphs", duplicate_of=5, outcome="duplicate")
    assert row(played, stated).verdict == "helps"
    played.records[5] = played.records[5].model_copy(
        update={"replicas": Replicas(launched=1, of=2)}
    )
    assert row(played, stated).verdict == "not run"


def test_a_hypothesis_of_dead_flags_alone_is_answered_without_a_launch():
    played = night()
    stated = hypothesis("steps", attacks="scheduling")
    (found,) = ledger(
        played.records, [stated], OBJECTIVE, BASELINE, {"steps": "--steps: read by nothing"}
    )
    assert found.verdict == "no effect"
    assert found.words == "no effect: --steps: read by nothing"
    assert found.cause == "--steps: read by nothing"
    assert (found.effect, found.trials) == (None, ())


def test_a_launch_of_it_is_judged_as_any_other():
    played = night()
    played.launch("hypothesis", "k", 0.15, hypothesis="steps")
    (found,) = ledger(
        played.records, [hypothesis("steps")], OBJECTIVE, BASELINE, {"steps": "read by nothing"}
    )
    assert found.verdict == "helps"


def test_what_changed_nothing_locates_no_bottleneck():
    played = night(seed=3)
    played.launch("hypothesis", "k1", hypothesis="intervals")
    stated = [hypothesis(name, attacks="scheduling") for name in ("steps", "intervals")]
    dead = {"steps": "read by nothing"}
    rows = ledger(played.records, stated, OBJECTIVE, BASELINE, dead)
    assert [row.verdict for row in rows] == ["no effect", "no effect"]
    assert null_results(rows) == []
