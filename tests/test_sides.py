"""What a person calls a trial, a configuration, a winner, and which launches that means."""

import pytest

from tests.evening import edit, folder, keep, launch, won
from tuner.definitions.validation import LoadedStudy, load_study
from tuner.errors import TunerError
from tuner.records import Records
from tuner.verdicts.arms import Arms
from tuner.views.sides import Side, best, side


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    return made


def arms(study: LoadedStudy) -> Arms:
    return Arms(Records(study.folder), study.objective, study.baseline.key)


def meant(study: LoadedStudy, text: str) -> Side:
    return side(study, arms(study), text)


def trials(found: Side) -> list[int]:
    return [record.number for record in found.launches]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("5", [5]),
        ("baseline", [0, 1, 2, 7, 9]),
        ("winner", [6, 8, 10]),
        ("fa3", [3]),
        ("flashinfer", [4]),
        ("chunked-prefill-size=8192", [6, 8, 10]),  # without the search's, which led to its choice
        ("attention-backend=flashinfer", [4]),
    ],
)
def test_each_name_means_these_launches(night, text, numbers):
    study = won(night)
    assert trials(meant(study, text)) == numbers


def test_changes_are_taken_in_any_order(night):
    study = load_study(night)
    keep(night, launch(study, 0, "search",
                       {"attention-backend": "fa3", "chunked-prefill-size": 4096}))  # fmt: skip
    assert trials(meant(study, "attention-backend=fa3,  chunked-prefill-size=4096")) == [0]
    assert trials(meant(study, "chunked-prefill-size=4096, attention-backend=fa3")) == [0]


def test_launches_that_a_person_cut_short_say_nothing(night):
    study = load_study(night)
    cut = {"chunked-prefill-size": 4096}
    keep(night, launch(study, 0, "search", cut, outcome="interrupted"),
         launch(study, 1, "search", cut))  # fmt: skip
    assert trials(meant(study, "chunked-prefill-size=4096")) == [1]


def test_what_is_not_there_is_refused_with_what_is(night):
    study = won(night)
    with pytest.raises(TunerError, match="there is no trial 99"):
        meant(study, "99")
    with pytest.raises(TunerError, match=r"called 'winer' \(did you mean 'winner'\?\)") as caught:
        meant(study, "winer")
    assert "a hypothesis (fa3, flashinfer)" in caught.value.hint


def test_before_anything_won_there_is_no_winner_and_the_baseline_stands_for_it(night):
    study = load_study(night)
    with pytest.raises(TunerError, match="the baseline was not launched yet"):
        meant(study, "baseline")
    with pytest.raises(TunerError, match="the hypothesis fa3 was not launched yet"):
        meant(study, "fa3")
    keep(night, launch(study, 0))
    with pytest.raises(TunerError, match="there is no winner in night") as caught:
        meant(study, "winner")
    assert caught.value.hint.startswith("No verdict: nothing but the baseline")
    assert best(study, arms(study)).name == "the baseline of night (no winner)"
    assert trials(best(study, arms(study))) == [0]


def test_what_is_declared_holds_no_secret(night):
    token = "  t: {env: HF_TOKEN, type: choice, choices: [hf_1, hf_2], default: hf_1}\n"
    edit(night, "space.yaml", "parameters:\n", f"parameters:\n{token}")
    study = load_study(night)
    keep(night, launch(study, 0, "search", {"t": "hf_2"}))
    assert meant(study, "0").declared["t"] == "(hidden)"
