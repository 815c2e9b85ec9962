"""Fast but wrong never wins: what records say of outputs, and what follows for every verdict."""

from dataclasses import replace
from typing import Any

import pytest

from tests.nightly import study
from tests.samples import OBJECTIVE, record
from tuner.definitions.models import Hypothesis
from tuner.measuring.fidelity import Continuation, Distance
from tuner.night.lessons import all_lessons, lessons
from tuner.records import Records, TrialRecord
from tuner.verdicts.analysis import pareto_front
from tuner.verdicts.arms import Arms
from tuner.verdicts.decision import conclusion, finalists
from tuner.verdicts.ledger import ledger
from tuner.verdicts.limits import kept
from tuner.verdicts.outputs import WRONG_OUTPUT, Outputs
from tuner.verdicts.standing import judged
from tuner.views.results import study_view

ADMITTING = OBJECTIVE.model_copy(
    update={"decision": OBJECTIVE.decision.model_copy(update={"differing": "admit"})}
)
SPOKEN = [Continuation(level=16, prompt=(1, 2), output=(3, 4))]


def apart(gap_nat: float, *, sure: int = 90, lead_nat: float = 2.0) -> list[Distance]:
    return [Distance(level=16, tokens=100, gap_nat=gap_nat, lead_nat=lead_nat, flips=0, sure=sure)]


def launch(number: int, kind: str = "baseline", gain: float = 1.0, **changes: Any) -> TrialRecord:
    rates = {1: 100.0 * gain, 16: 1000.0 * gain}
    return record(number, kind, rates=rates, continuations=SPOKEN, **changes)


def night(
    gap_nat: float | None, *, gain: float = 1.5, own_nat: float = 0.001, **own: Any
) -> list[TrialRecord]:
    """A configuration that is faster, launched as a search does and then afresh twice, and by how
    much its output was found to differ; None where it was not compared."""
    values = {"attention": "odd", "chunk": 4}
    found = {} if gap_nat is None else {3: apart(gap_nat), 4: apart(gap_nat)}
    same: dict[str, Any] = {"key": "odd", "values": values, "gain": gain}
    return [
        launch(0, values={"attention": None, "chunk": 2}),
        launch(1, gain=1.01, rescored={0: apart(own_nat, **own)}),
        launch(2, gain=0.99, rescored={1: apart(own_nat / 2, **own)}),
        launch(3, "search", **same),
        launch(4, "confirm", **same),
        launch(5, rescored=found),
        launch(6, "confirm", **same),
    ]


def test_a_winner_whose_output_is_the_baselines_wins():
    found = conclusion(night(0.002), OBJECTIVE, "base")
    assert found.winner_key == "odd"
    assert found.output == (
        "outputs of 2 launches compared with the baseline's, none differ. Limit: 0.023 nat per"
        " token (log-probability lost) and 2 % of tokens the baseline would not have said; the"
        " baseline's own 2 launches: at most 0.001 nat and 0 %"
    )


def test_where_no_launch_was_compared_nothing_is_said_to_be_the_same():
    said = conclusion(night(None), OBJECTIVE, "base").output
    assert said.startswith("outputs: no launch was compared with the baseline's yet. Limit: 0.02")
    assert "none differ" not in said


def test_a_faster_configuration_whose_output_differs_never_wins_and_the_sentence_says_why():
    found = conclusion(night(0.8), OBJECTIVE, "base")
    assert found.winner_key is None
    assert (
        "looked faster: its output is 0.8 nat per token from the baseline's at 16, with 0 % of"
        " tokens that it would not have said (limit 0.023 nat; the baseline's own launches: at most"
        " 0.001)." in found.sentence
    )
    assert "0.8 nat" in found.finalists[0].refused
    assert finalists(night(0.8), OBJECTIVE, "base") == []


def test_it_is_on_no_front_and_feasible_in_no_view(tmp_path):
    """Where the baseline breaks a limit that it would keep."""
    loaded = study(tmp_path, {"trials": 9})
    limited = OBJECTIVE.model_copy(update={"slos": ["output_tok_s >= 120"]})
    for gap_nat, keys in ((0.002, {"odd"}), (0.8, {"base"})):
        front = pareto_front(night(gap_nat), "output_tok_s", "tok_s_per_user", OBJECTIVE, "base")
        assert {point.key for point in front} == keys
        written = Records(tmp_path / str(gap_nat))
        written.path.parent.mkdir()
        for made in night(gap_nat):
            key = loaded.baseline.key if made.kind == "baseline" else made.key
            written.append(made.model_copy(update={"key": key}))
        view = study_view(replace(loaded, objective=limited), written)
        assert view.feasible == (gap_nat < 0.1)


def test_every_launch_of_it_is_a_failure_that_blames_what_no_right_launch_has():
    right = launch(7, "search", key="chunk", values={"attention": None, "chunk": 4})
    records = [*night(0.8), right, launch(8, rescored={7: apart(0.001)})]
    wrong = [r for r in judged(records) if r.failure is not None]
    assert [r.number for r in wrong] == [3, 4, 6]
    assert {r.failure.kind for r in wrong if r.failure} == {WRONG_OUTPUT}
    assert wrong[0].failure is not None
    assert wrong[0].failure.blame == ["attention"]
    assert wrong[2].failure is not None
    assert "in trial 3" in wrong[2].failure.cause


def test_the_search_hears_of_it_when_it_comes_to_light_and_again_in_a_later_run():
    records = night(0.8)
    told = lessons(records[:6])
    assert [(r.number, r.outcome) for r in told] == [(5, "completed"), (3, "failed"), (4, "failed")]
    last = {r.number: r.outcome for r in all_lessons(records[:6])}
    assert last[3] == last[4] == "failed"


def test_a_hypothesis_whose_output_differs_gets_that_verdict():
    stated = Hypothesis(id="h", change={"attention": "odd"}, claim="c", gain_percent=(1.0, 2.0))
    records = [
        r.model_copy(update={"hypothesis": "h"} if r.key == "odd" else {}) for r in night(0.8)
    ]
    row = ledger(records, [stated], OBJECTIVE)[0]
    assert row.verdict == "wrong output"
    assert "0.8 nat per token" in row.words


def test_a_study_that_admits_another_output_shows_how_far_it_is():
    found = conclusion(night(0.8), ADMITTING, "base")
    assert found.winner_key == "odd"
    assert "which the study admits: 0.8 nat per token" in found.sentence
    stated = Hypothesis(id="h", change={"attention": "odd"}, claim="c", gain_percent=(1.0, 2.0))
    records = [
        r.model_copy(update={"hypothesis": "h"} if r.key == "odd" else {}) for r in night(0.8)
    ]
    assert "0.8 nat" in ledger(records, [stated], ADMITTING)[0].words


def test_what_was_not_compared_does_not_win_yet():
    found = conclusion(night(None), OBJECTIVE, "base")
    assert found.winner_key is None
    assert found.finalists[0].refused == "its output was not compared with the baseline's yet"


def test_why_a_configuration_was_not_compared_is_its_own_reason():
    records = night(None)
    why = {3: "trial 3 could not be scored: no score", 9: "trial 9 could not be scored: refused"}
    records[5] = records[5].model_copy(update={"not_scored": why, "not_compared": "of its own"})
    found = conclusion(records, OBJECTIVE, "base")
    assert found.finalists[0].refused == (
        "its output was not compared with the baseline's yet: trial 3 could not be scored: no score"
    )


def test_where_nothing_of_the_baseline_can_be_held_against_it_a_distance_is_no_judgement():
    """Its own launches gave no usable continuation: how far it may be is not known."""
    records = [r.model_copy(update={"rescored": {}}) if r.number < 3 else r for r in night(0.8)]
    found = conclusion(records, OBJECTIVE, "base")
    assert found.winner_key is None
    assert found.finalists[0].refused == (
        "outputs are not judged yet: 0 of the 2 launches of the baseline that this needs were"
        " scored"
    )


def test_it_is_none_of_those_that_keep_the_limits():
    assert kept(Arms(night(0.002), OBJECTIVE, "base")).within == 1
    assert kept(Arms(night(0.8), OBJECTIVE, "base")).within == 0


def test_too_few_launches_of_the_baseline_judge_nothing_and_say_so():
    records = [r.model_copy(update={"rescored": {}}) if r.number == 2 else r for r in night(None)]
    found = conclusion(records, OBJECTIVE, "base")
    assert found.winner_key is None
    assert "1 of the 2 launches of the baseline that this needs were scored" in found.output


@pytest.mark.parametrize(
    ("why", "said"),
    [("", "before outputs were compared"), ("/v1/completions: status 400", "status 400")],
)
def test_where_outputs_cannot_be_compared_a_winner_may_win_and_that_is_said(why, said):
    silent = {"continuations": [], "rescored": {}, "not_compared": why}
    records = [r.model_copy(update=silent) for r in night(None)]
    found = conclusion(records, OBJECTIVE, "base")
    assert found.winner_key == "odd"
    assert said in found.output


def test_the_baselines_own_distance_widens_what_is_tolerated():
    assert conclusion(night(0.06), OBJECTIVE, "base").winner_key is None
    assert conclusion(night(0.06, own_nat=0.02), OBJECTIVE, "base").winner_key == "odd"


def test_a_baseline_that_hardly_knows_what_to_say_is_a_weak_test():
    assert "a weak test" in Outputs(night(0.0, sure=5)).summary()
    assert "a weak test" not in Outputs(night(0.0)).summary()


def test_a_baseline_that_contradicts_itself_is_told_of():
    assert "its own output may be wrong" in Outputs(night(0.0, own_nat=1.0)).summary()


def test_the_baseline_itself_is_never_refused():
    records = [*night(0.002), launch(7, rescored={5: apart(0.03)})]
    assert Outputs(records).differs(5) == ""
    assert Arms(records, OBJECTIVE, "base").baseline[-1].outcome == "completed"


def test_records_with_distances_are_read_as_they_were_written():
    written = night(0.8)[5]
    assert TrialRecord.model_validate_json(written.model_dump_json()) == written
