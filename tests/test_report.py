"""One page of the whole study: complete, alone, well-formed, and deaf to what logs say."""

import re
import stat
from dataclasses import replace

import pytest

from tests.evening import died, edit, folder, keep, launch, remember, won
from tests.pages import Page, read
from tests.test_html import ATTACKS
from tuner.definitions.validation import load_study
from tuner.errors import TunerError
from tuner.records import Records
from tuner.verbs.report import report
from tuner.views.report import report as gathered
from tuner.views.report import written

LARGE = {"chunked-prefill-size": 8192}


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    return made


def reported(night) -> Page:
    return read(report(night, None).read_text())


def test_it_lies_in_the_study_unless_another_place_is_named(night, tmp_path):
    assert report(night, None) == night / "report.html"
    assert report(night, tmp_path / "else.html").read_text() == (night / "report.html").read_text()


def test_a_night_is_told_whole(night):
    won(night)
    text = reported(night).text
    for words in (
        "REHEARSAL: nothing behind this was measured on hardware.",
        "Winner: chunked-prefill-size=8192",
        "over the baseline from 3 fresh launches.",
        "--chunked-prefill-size 8192",
        "the winner is faster",
        "dies while loading: Not enough memory.",
        "Take less.",
        "attention-backend=flashinfer",
        "Launch-to-launch noise 0.1 % of the score",
        "From its first to its last of 5 launches the baseline changed by",
        "tok_s_per_user",
        "5, 6, 8, 10",
        "died while loading: Not enough memory. [oom]",
        "Where the time went: load 70%",
        "hardware gpus",
        "engine surface",
        "small",
        "input_tokens",
        "2026-01-01T00:00:00+00:00 to 2026-01-01T00:10:00+00:00",
    ):
        assert words in text, words


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of the tables in a section."""
    section = page.split(f"<h2>{title}</h2>")[1].split("</section>")[0]
    found = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", section)]
    return [cells for cells in found if cells]


def test_the_ladder_has_both_sides_and_the_interval_of_each_rung(night):
    won(night)
    one, eight, score = rows(report(night, None).read_text(), "The ladder")
    assert one[0:3] == ["1", "20 to 20.04", "50"]
    assert one[4] == "23.98 to 24.02"
    assert re.match(r"\+19\.9 % \(95 % interval \+19\.\d to \+20\.\d\)$", one[7])
    assert one[8] == "the winner is faster"
    assert eight[0] == "8"
    assert eight[9] == "0.1 %"
    assert score[0] == "score"
    assert score[8] == "the winner is faster"


def test_where_nothing_won_the_best_finalist_stands_beside_the_baseline(night):
    study = load_study(night)
    keep(night, *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)))
    keep(night, launch(study, 3, "search", LARGE, gain=1.002),
         launch(study, 4, "confirm", LARGE), launch(study, 5),
         launch(study, 6, "confirm", LARGE, gain=1.001))  # fmt: skip
    page = report(night, None).read_text()
    text = read(page).text
    assert "Not finished: 7 of 26 launches. So far no configuration beats the baseline" in text
    assert "Winner" not in text
    assert "the best finalist, tok/s" in text
    assert "--chunked-prefill-size 2048" in text
    assert "(90 % interval " in rows(page, "The ladder")[0][7]
    assert rows(page, "The ladder")[0][8] == "within noise: surely less than 3 % apart"


def test_before_anything_was_launched_it_says_so_everywhere(night):
    text = reported(night).text
    for words in (
        "Nothing can be concluded",
        "The baseline was not launched yet.",
        "Nothing died by the fault of its configuration.",
        "No configuration has completed its ladder yet.",
        "Nothing was launched yet.",
        "Drift is unknown",
    ):
        assert words in text, words


def test_with_the_baseline_alone_its_numbers_and_noise_are_shown(night):
    study = load_study(night)
    keep(night, *(launch(study, n, gain=1 + 0.01 * n) for n in range(2)))
    one, _ = rows(report(night, None).read_text(), "The ladder")
    assert one == ["1", "20 to 20.2", "50", "49.5 to 50", "0.7 %"]


def test_a_study_that_changed_is_said_and_no_command_is_given(night):
    won(night)
    remember(night)
    edit(night, "objective.yaml", "window_s: 20", "window_s: 30")
    text = reported(night).text
    assert "CHANGED: objective.window_s was 20.0 when the records were made and is 30.0" in text
    assert "Not shown, since the study is another by now" in text
    assert "--model-path" not in text


def test_a_real_engine_carries_no_label(night):
    study = won(night)
    found = gathered(study, Records(night))
    assert "REHEARSAL" in written(found)
    real = replace(found, view=found.view.model_copy(update={"rehearsal": False}))
    assert "REHEARSAL" not in written(real)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_of_a_log_or_of_a_person_becomes_markup(night, attack):
    plain = won(night)
    expected = reported(night).tags
    quoted = "'" + attack.replace("'", "''") + "'"
    if attack.isprintable():
        edit(night, "space.yaml", "fa3 is faster", quoted)
        edit(night, "space.yaml", "id: fa3", f"id: {quoted}")
        edit(night, "space.yaml", "choices: [triton, fa3, flashinfer]",
             f"choices: [triton, fa3, flashinfer, {quoted}]")  # fmt: skip
    remember(night)
    study = load_study(night) if attack.isprintable() else plain
    value = attack if attack.isprintable() else "fa3"
    dead = died(study, 11, {"attention-backend": value}, attack, advice=attack, blame=[attack],
                kind="hypothesis", hypothesis=attack)  # fmt: skip
    keep(night, dead.model_copy(update={"host": attack, "started_at": "2026-01-01T09:00:00+00:00"}))
    found = reported(night)
    assert found.tags == expected
    assert "script" not in found.tags
    assert all(not name.startswith("on") for _, a in found.elements for name in a)
    readable = attack.replace("\x1b[31m", "").replace("\x00", " ")
    assert found.text.count(readable) >= 5


def test_it_fetches_and_runs_nothing(night):
    won(night)
    found = reported(night)
    assert found.tags & {"script", "img", "link", "iframe", "object", "form", "a", "use"} == set()
    links = {"src", "href", "xlink:href", "action", "style", "srcset"}
    assert all(not links & attributes.keys() for _, attributes in found.elements)
    text = (night / "report.html").read_text()
    assert "url(" not in text
    assert "@import" not in text


def test_no_secret_is_in_it(night, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    edit(night, "study.yaml", "model: small",
         'model: small\nfixed: {env: {HF_TOKEN: "${HF_TOKEN}", A_TOKEN: hf_other}}')  # fmt: skip
    won(night)
    text = report(night, None).read_text()
    assert "hf_" not in text
    assert "HF_TOKEN" in text


def test_what_rests_on_a_single_launch_and_the_baseline_are_drawn_apart(night):
    won(night)
    found = reported(night)
    marks = [str(a["class"]) for tag, a in found.elements if tag in ("circle", "rect")]
    assert sorted(marks) == sorted(["beaten baseline"] * 2 + ["front"] * 2 + ["beaten once"] * 2)
    for tag, attributes in found.elements:
        if tag == "circle":
            assert 0 <= float(attributes["cx"] or -1) <= 640
            assert 0 <= float(attributes["cy"] or -1) <= 320


def test_a_page_that_cannot_be_written_leaves_the_old_one(night, tmp_path):
    won(night)
    with pytest.raises(TunerError, match=r"nowhere/r\.html: cannot be written: No such") as err:
        report(night, tmp_path / "nowhere" / "r.html")
    assert "--output" in err.value.hint
    with pytest.raises(TunerError, match="cannot be written"):
        report(night, night)
    assert sorted(p.name for p in night.parent.iterdir()) == ["night"]
    report(night, None)
    assert stat.S_IMODE((night / "report.html").stat().st_mode) & 0o444
    before = (night / "report.html").read_text()
    report(night, None)
    assert (night / "report.html").read_text() == before
    assert [p.name for p in night.iterdir() if p.name.startswith(".report")] == []
