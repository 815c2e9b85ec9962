"""The front marks the baseline, what was beaten, and what rests on a single launch."""

import re

import pytest

from tests.evening import folder, keep, launch, won
from tuner.console.front import ONCE, _chart, show_front
from tuner.definitions.validation import load_study
from tuner.verbs import inspect
from tuner.verdicts.analysis import ParetoPoint
from tuner.views.results import Front
from tuner.views.words import PER_USER

AXES = ("tok_s_per_user", "tok_s_per_gpu")


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return made


def shown(night, capsys) -> str:
    show_front(inspect.pareto(night, *AXES))
    return str(capsys.readouterr().out)


def point(x: float, y: float, key: str = "k") -> ParetoPoint:
    return ParetoPoint(key=key, trials=(0,), level=None, x=x, y=y)


def test_a_beaten_baseline_is_drawn_and_listed_below_the_front(night, capsys):
    won(night)
    text = shown(night, capsys)
    assert "   = the baseline   . beaten by one of these\n" in text
    assert text.split("tok_s_per_user, ")[0].count("=") == 2
    assert re.search(r"^ = +1 +20\.0\d +20\.0\d +0, 1, 2, 7, 9 +the baseline *$", text, re.M)
    assert re.search(r"^ = +8 +10\.\d+ +80\.\d+ +0, 1, 2, 7, 9 +the baseline *$", text, re.M)


def test_a_baseline_on_the_front_has_its_letter_and_no_second_row(night, capsys):
    study = load_study(night)
    keep(night, *(launch(study, n) for n in range(2)))
    keep(night, launch(study, 2, "search", {"attention-backend": "fa3"}, gain=0.9))
    text = shown(night, capsys)
    assert re.search(r"^ A +1 +20 +20 +0, 1 +the baseline *$", text, re.M)
    assert "= the baseline" not in text
    assert not re.search(r"^ = ", text, re.M)
    assert "   . beaten by one of these\n" in text


def test_what_rests_on_a_single_launch_is_said(night, capsys):
    study = load_study(night)
    keep(night, *(launch(study, n) for n in range(2)))
    assert ONCE not in shown(night, capsys)
    keep(night, launch(study, 2, "search", {"attention-backend": "fa3"}, gain=1.1))
    text = shown(night, capsys)
    assert re.search(r"^ A +1 +22 +22 +2, once +attention-backend=fa3 *$", text, re.M)
    assert ONCE in text
    assert text.replace("\n", " ").rstrip().endswith(f"{ONCE} {PER_USER}")


def test_what_a_users_rate_is_is_said_where_it_is_shown(night, capsys):
    won(night)
    assert PER_USER in shown(night, capsys).replace("\n", " ")
    show_front(inspect.pareto(night, "output_tok_s", "tok_s_per_gpu"))
    assert "a user" not in capsys.readouterr().out


def test_what_was_beaten_gives_way_to_letters_and_widens_the_picture():
    front = Front(study="s", rehearsal=False, x="x", y="y", points=[point(10, 10)],
                  beaten=[point(10, 10), point(1, 1, "base"), point(1, 1), point(5, 5)],
                  baseline_key="base", changes={})  # fmt: skip
    lines = _chart(front).splitlines()
    assert lines[0] == "  y, 1 to 10"
    assert lines[1] == "  |" + " " * 59 + "A"
    assert lines[14].startswith("  |= ")
    assert "\n".join(lines[1:15]).count(".") == 1


def test_every_point_is_on_the_front_or_beaten(night):
    won(night)
    found = inspect.pareto(night, *AXES)
    assert len(found.points) == 2
    assert {(p.level, p.key) for p in found.beaten} == {
        (at, key) for at in (1, 8) for key in found.changes if key != found.points[0].key
    }
    assert found.changes[found.baseline_key] == {}
