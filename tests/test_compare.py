"""Two configurations beside each other: who is faster where, how surely, when that is refused."""

import json
import re
import shutil

import pytest

from tests.evening import MARKUP, SHOWN_MARKUP, died, edit, folder, keep, launch, remember, won
from tuner.console.compare import show_comparison
from tuner.definitions.validation import load_study
from tuner.errors import StudyChanged, TunerError
from tuner.records import Records
from tuner.verbs.compare import compare
from tuner.views.compare import Comparison

LARGE = {"chunked-prefill-size": 8192}


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return made


def second(night, name="second", **edits):
    """A copy of the study without its records."""
    made = night.parent / name
    shutil.copytree(night, made)
    for file in ("trials.jsonl", "environment.json"):
        (made / file).unlink(missing_ok=True)
    return made


def judged(found: Comparison) -> dict[float | None, str]:
    return {row.level: row.verdict for row in (*found.rungs, found.score)}


def test_one_launch_each_is_no_verdict_though_other_launches_tell_the_noise(night):
    won(night)
    found = compare(night, "3", "5")
    assert set(judged(found).values()) == {"no verdict"}
    assert found.score.effect is not None
    assert found.score.effect.low_percent is not None
    assert found.score.words == "+20.0 %; one launch each: no verdict"
    assert found.rungs[1].a_rate == pytest.approx(80.0)
    assert found.rungs[1].b_rate == pytest.approx(96.0)


def test_the_winner_over_the_baseline_is_faster_with_its_interval(night):
    won(night)
    found = compare(night, "baseline", "winner")
    assert set(judged(found).values()) == {"b"}
    assert found.a.trials == [0, 1, 2, 7, 9]
    assert found.b.trials == [6, 8, 10]
    assert re.match(
        r"the winner over the baseline: \+19\.\d % \(95 % interval \+19\.\d to \+2\d\.\d\);"
        r" the winner is faster\.$",
        found.sentence,
    )
    assert found.declared == {"chunked-prefill-size": (2048, 8192)}


def test_the_other_way_round_the_same_side_is_faster(night):
    won(night)
    found = compare(night, "winner", "baseline")
    assert set(judged(found).values()) == {"a"}
    assert found.score.effect is not None
    assert found.score.effect.gain_percent < 0
    assert "the winner is faster" in found.sentence


def test_what_is_surely_inside_the_band_is_within_noise(night):
    won(night)
    found = compare(night, "baseline", "fa3")
    assert set(judged(found).values()) == {"within noise"}
    assert re.match(
        r"-0\.1 % \(90 % interval -0\.\d to \+0\.\d\); within noise: surely less than 3 % apart$",
        found.score.words,
    )


def test_what_noise_leaves_open_says_how_many_launches_would_decide(night):
    study = load_study(night)
    keep(night, *(launch(study, n, gain=g) for n, g in enumerate((0.95, 1.05, 1.0))))
    keep(night, launch(study, 3, "hypothesis", {"attention-backend": "fa3"}, gain=1.04,
                       hypothesis="fa3"))  # fmt: skip
    found = compare(night, "baseline", "fa3")
    assert set(judged(found).values()) == {"undecided"}
    assert re.search(
        r"within noise, undecided: \d+ more launches of each side would", found.sentence
    )


def test_of_several_changes_those_that_were_measured_alone_are_named(night):
    study = load_study(night)
    both = {"attention-backend": "fa3", **LARGE}
    keep(
        night,
        *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)),
        launch(study, 3, "hypothesis", {"attention-backend": "fa3"}, hypothesis="fa3"),
        launch(study, 4, "confirm", both, gain=1.2),
        launch(study, 5, gain=1.0),
        launch(study, 6, "confirm", both, gain=1.2),
    )
    said = (
        "Of its 2 changes, measured alone: attention-backend=fa3: no effect, from one launch; "
        "never measured alone: chunked-prefill-size=8192."
    )
    assert said in compare(night, "baseline", "winner").notes
    assert said in compare(night, "winner", "baseline").notes
    assert said not in compare(night, "baseline", "fa3").notes
    assert said not in compare(night, "fa3", "winner").notes


def test_a_study_is_not_held_against_itself(night):
    won(night)
    link = night.parent / "link"
    link.symlink_to(night)
    for spelt in (night, night / ".." / night.name, link):
        with pytest.raises(TunerError, match=f"^'{night}' and '{spelt}' are one study"):
            compare(night, str(spelt), None)


def test_regimes_that_disagree_are_told_apart(night):
    study = load_study(night)
    keep(night, *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)))
    mixed = launch(study, 3, "search", LARGE)
    one, eight = mixed.rungs
    slow = one.model_copy(update={"output_tok_s": 0.8 * one.output_tok_s})
    fast = eight.model_copy(update={"output_tok_s": 1.4 * eight.output_tok_s})
    keep(night, mixed.model_copy(update={"rungs": [slow, fast]}))
    found = compare(night, "baseline", "3")
    assert judged(found)[1] == "a"
    assert judged(found)[8] == "b"
    assert found.sentence.endswith("By rung: trial 3 is faster at 8; the baseline is faster at 1.")


def test_a_side_that_died_is_said_with_its_cause_and_where_both_ran_is_judged(night):
    study = load_study(night)
    keep(night, *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)))
    keep(night, died(study, 3, {"attention-backend": "flashinfer"}, MARKUP))
    half = launch(study, 4, "search", LARGE, ready_s=1.0)
    failure = died(study, 4, LARGE, "no memory").failure
    keep(night, half.model_copy(
        update={"outcome": "failed", "failure": failure, "rungs": half.rungs[:1]}))  # fmt: skip
    nothing = compare(night, "3", "baseline")
    assert nothing.sentence == (
        "the baseline over trial 3: no verdict on the whole ladder: trial 3 served no load."
    )
    assert nothing.a.outcomes[0].startswith("trial 3 died while loading: [/foo]")
    part = compare(night, "baseline", "4")
    assert judged(part) == {1: "within noise", 8: "not measured", None: "not measured"}
    assert part.sentence.endswith("within noise at 1; not both measured at 8.")
    assert part.b.outcomes == ["trial 4 died at 8: no memory [oom]"]


def test_broken_limits_are_said(night):
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s >= 22]")
    won(night)
    found = compare(night, "0", "5")
    assert found.a.breaches == ["output_tok_s >= 22 at 1: found 20"]
    assert found.b.breaches == []


def test_what_the_servers_said_is_held_against_each_other(night):
    study = load_study(night)
    keep(night, launch(study, 0, effective={"a": 1, "b": 2}),
         launch(study, 1, "search", LARGE, effective={"a": 1, "b": True, "c": "x"}),
         launch(study, 2, "search", {"attention-backend": "fa3"}))  # fmt: skip
    assert compare(night, "0", "1").effective == {"b": (2, True), "c": (None, "x")}
    assert compare(night, "0", "2").effective == {}


def test_the_same_configuration_and_the_same_arguments_are_called_noise(night):
    study = load_study(night)
    keep(night, launch(study, 0, effective_key="e"), launch(study, 1),
         launch(study, 2, "search", LARGE, effective_key="e"))  # fmt: skip
    assert compare(night, "0", "1").notes == [
        "Both are the same configuration: what differs is noise."
    ]
    assert compare(night, "0", "2").notes == [
        "Both run with the same arguments: what differs is noise."
    ]
    assert compare(night, "1", "2").notes == []


def test_other_hosts_are_a_caution(night):
    study = load_study(night)
    keep(night, launch(study, 0, host="n1"), launch(study, 1, "search", LARGE, host="n2"))
    assert compare(night, "0", "1").notes == ["Measured on different hosts: n1; n2."]


def test_a_launch_is_not_held_against_itself(night):
    won(night)
    for a, b in (("3", "3"), ("baseline", "0"), ("winner", "8")):
        with pytest.raises(TunerError, match="have launches in common"):
            compare(night, a, b)


def test_records_of_other_files_are_not_compared(night):
    won(night)
    remember(night)
    edit(night, "objective.yaml", "window_s: 20", "window_s: 30")
    with pytest.raises(StudyChanged, match=r"window_s was 20\.0 .* is 30\.0 now"):
        compare(night, "baseline", "winner")


def test_winners_of_two_studies_are_compared_by_what_both_declare(night):
    won(night)
    other = second(night)
    edit(other, "study.yaml", "model: small",
         "model: small\nfixed: {flags: {max-running-requests: 64}}")  # fmt: skip
    study = load_study(other)
    keep(other, *(launch(study, n, gain=1.1 + 0.001 * n) for n in range(3)))
    found = compare(night, str(other), None)
    assert found.a.name == "the winner of night"
    assert found.b.name == "the baseline of second (no winner)"
    assert found.b.trials == [0, 1, 2]
    assert found.declared == {
        "chunked-prefill-size": (8192, 2048), "max-running-requests": (None, 64)
    }  # fmt: skip
    assert set(judged(found).values()) == {"a"}
    assert "no baseline in common" in found.notes[0]


def test_a_machine_that_changed_between_two_studies_leaves_no_verdict(night):
    won(night)
    other = second(night)
    study = load_study(other)
    keep(other, *(launch(study, n, gain=0.9 + 0.001 * n) for n in range(3)))
    found = compare(night, str(other), None)
    assert set(judged(found).values()) == {"no verdict"}
    assert "the machine changed between the studies: no verdict" in found.score.words
    assert re.match(r"The baseline of both, .*: -10\.\d % \(95 %", found.notes[0])


def test_two_nights_alike_are_judged(night):
    won(night)
    other = second(night)
    study = won(other)
    found = compare(night, str(other), None)
    assert study.folder == other
    assert set(judged(found).values()) == {"within noise"}
    assert found.declared == {}
    assert found.notes[0].startswith("The baseline of both, measured in the second over the first")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "study.yaml",
            "model: small",
            "model: large",
            'model is "small" in the one and "large" in',
        ),
        ("objective.yaml", "window_s: 20", "window_s: 30", "objective.window_s is 20.0 in the one"),
        ("study.yaml", "gpus: 1", "gpus: 2", "hardware.gpus is 1 in the one and 2 in the other"),
        ("surface.yaml", "seed: 3", "seed: 4", "surface is"),
    ],
)
def test_studies_of_different_environments_are_refused_with_what_differs(
    night, file, old, new, said
):
    won(night)
    other = second(night)
    edit(other, file, old, new)
    keep(other, launch(load_study(other), 0))
    with pytest.raises(StudyChanged, match="were not measured alike: ") as caught:
        compare(night, str(other), None)
    assert said in caught.value.message


def test_a_study_without_launches_or_with_other_files_by_now_is_refused(night):
    won(night)
    other = second(night)
    with pytest.raises(TunerError, match="nothing was measured yet"):
        compare(night, str(other), None)
    keep(other, launch(load_study(other), 0))
    edit(other, "study.yaml", "model: small", "model: large")
    with pytest.raises(StudyChanged, match='model was "small"'):
        compare(night, str(other), None)
    with pytest.raises(TunerError, match="'baseline' alone is nothing to compare with"):
        compare(night, "baseline", None)


def test_reading_writes_nothing_and_json_comes_back(night):
    won(night)
    before = {path: path.read_bytes() for path in night.rglob("*") if path.is_file()}
    found = compare(night, "baseline", "winner")
    assert {path: path.read_bytes() for path in night.rglob("*") if path.is_file()} == before
    document = json.loads(found.model_dump_json())
    assert document["schema_number"] == 1
    assert document["declared"] == {"chunked-prefill-size": [2048, 8192]}


def test_people_read_sentence_sides_ladder_differences_and_notes(night, capsys):
    study = won(night)
    keep(night, died(study, 11, {"attention-backend": "fa3"}, MARKUP))
    many = {f"flag-{n}": n for n in range(30)}
    keep(night, launch(study, 12, effective=many, host="n1"),
         launch(study, 13, "search", LARGE, host="n2",
                gain=1.2, effective=dict.fromkeys(many, -1)))  # fmt: skip
    show_comparison(compare(night, "baseline", "winner"))
    text = capsys.readouterr().out
    assert text.startswith("REHEARSAL")
    assert "A: the baseline (trials 0, 1, 2, 7, 9, 12)\nB: the winner (trials 6, 8, 10)\n" in text
    assert re.search(r"^ 8 +80\.\d+ +96 +\+19\.\d % .*; the winner is faster *$", text, re.M)
    assert re.search(r"^ score +\+19\.\d % ", text, re.M)
    assert re.search(r"^ chunked-prefill-size +2048 +8192 *$", text, re.M)
    show_comparison(compare(night, "12", "13"))
    text = capsys.readouterr().out
    assert text.count("flag-") == 20
    assert "and 10 more; --json has all" in text
    assert "Measured on different hosts: n1; n2." in text
    assert "A: trial 12\nB: trial 13\n" in text
    show_comparison(compare(night, "11", "12"))
    assert SHOWN_MARKUP in capsys.readouterr().out
    assert len(list(Records(night))) == 14
