"""What people read: every text as it is, the verdict where it is seen, no line that breaks."""

import re
from typing import Any

import pytest

from tests.evening import MARKUP, SHOWN_MARKUP, died, edit, folder, keep, launch, remember, won
from tuner.console import front, terminal
from tuner.console import show as console
from tuner.console.terminal import one_line
from tuner.definitions.validation import load_study
from tuner.measuring.machine import MachineUse
from tuner.verbs import inspect
from tuner.verdicts.analysis import ParetoPoint
from tuner.views.results import Front
from tuner.views.words import plain, said_changes

SHOWN: dict[str, tuple[Any, Any]] = {
    "check": (inspect.check, console.show_check),
    "plan": (inspect.plan, console.show_plan),
    "show": (inspect.show, console.show_study),
    "trial": (inspect.show_trial, console.show_trial),
    "pareto": (inspect.pareto, front.show_front),
}
AXES = ("tok_s_per_user", "tok_s_per_gpu")


@pytest.fixture
def night(tmp_path, monkeypatch):
    made = folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return made


@pytest.fixture
def told(night, capsys):
    """What a verb prints for people."""

    def tell(verb: str, *words) -> str:
        ask, show = SHOWN[verb]
        show(ask(night, *words))
        captured = capsys.readouterr()
        assert captured.err == ""
        return str(captured.out)

    return tell


def test_an_empty_study_says_how_to_begin(told):
    text = told("show")
    assert "REHEARSAL" in text
    assert "Nothing can be concluded: no launch of the baseline" in text
    assert "Nothing was launched yet: tuner run night" in text
    assert "not run" in text
    assert "No configuration has completed its ladder yet." in told("pareto", *AXES)
    assert "0 launches made, 26 left; 5 s a launch (an estimate" in told("plan")


def test_check_is_a_sentence(told, night):
    assert told("check").startswith("night: no faults. Engine rehearsal, 3 parameters")
    edit(night, "space.yaml", "low: 0.4, high: 1.3, step: 0.3", "low: 0.4, high: 1.3")
    assert "(a continuous space)" in told("check")


def test_a_space_too_large_to_count_is_not_called_continuous(told, night):
    many = "".join(f"  {n}: {{type: int, low: 1, high: 1000}}\n" for n in ("page-size", "pp-size"))
    rule = "forbid: [{if: {page-size: 1}, reason: why}]\n"
    edit(night, "space.yaml", "hypotheses:", f"{many}{rule}hypotheses:")
    assert "(more than 100,000 combinations)" in told("check")


def test_what_could_not_be_verified_is_said(night, capsys):
    ready = inspect.check(night)
    console.show_check(ready.model_copy(update={"not_ready": ["no [bold]engine[/]"]}))
    assert "not ready on this machine: no [bold]engine[/]" in capsys.readouterr().out


def test_the_verdict_is_on_the_first_lines_and_of_a_long_night_on_the_last(told, night):
    won(night)
    lines = told("show").splitlines()
    verdict = lines[1:4]
    assert verdict[0] == "Winner: chunked-prefill-size=8192"
    assert "over the baseline from 3 fresh launches" in verdict[1]
    assert verdict[2] == "tuner export night"
    assert lines[-3:] == verdict


def test_a_study_that_changed_since_is_said_wherever_the_verdict_is(told, night):
    won(night)
    remember(night)
    assert "CHANGED" not in told("show")
    edit(night, "objective.yaml", "window_s: 20", "window_s: 30")
    lines = told("show").splitlines()
    said = "CHANGED: objective.window_s was 20.0 when the records were made and is 30.0 now"
    assert lines[1].startswith(said)
    assert lines[-4].startswith(said)


def test_of_a_night_that_fits_the_screen_the_verdict_stands_once(told, night, monkeypatch):
    won(night)
    monkeypatch.setenv("LINES", "100")
    assert told("show").count("Winner:") == 1


def test_a_study_whose_name_a_shell_would_split_is_quoted(night, told, tmp_path):
    won(night)
    view = inspect.show(night.rename(tmp_path / "my night"))
    assert console._verdict(view)[2].plain == "tuner export 'my night'"


def test_hypotheses_dead_ends_trials_time_and_noise_are_all_there(told, night):
    won(night)
    text = told("show")
    for words in (
        "flashinfer  5 to 10 %  blocked    dies while loading: Not enough memory.",
        "never again: attention-backend=flashinfer (trial 4) [oom]",
        "  Not enough memory.\n  Take less.",
        "died while loading: Not enough memory. [oom]",
        "11 launches, 2 minutes: load 70%, start 20%, stop 5%, other 5%",
        "launch-to-launch noise 0.1 % of the score",
    ):
        assert words in text, words
    assert re.search(r"^ 5 +search +1\.19\d\d +24 +96 +10 s +chunked-prefill-size=8192", text, re.M)


def test_why_a_run_ended_is_said(night, capsys):
    won(night)
    console.show_study(inspect.show(night).model_copy(update={"ended": "the budget is used up"}))
    assert "ended: the budget is used up" in capsys.readouterr().out


def test_the_blamed_change_stands_for_all_that_were_made(told, night):
    study = load_study(night)
    values = {"attention-backend": "fa3", "chunked-prefill-size": 8192}
    keep(night, *(died(study, n, values, blame=["attention-backend"]) for n in range(2)))
    assert (
        "never again: attention-backend=fa3 (trials 0, 1, blamed out of 2 changes) [oom]"
        in told("show")
    )


@pytest.mark.parametrize("verb", ["show", "trial"])
def test_what_a_log_says_is_shown_as_it_is(told, night, verb):
    study = load_study(night)
    keep(night, died(study, 0, {"attention-backend": "fa3"}, MARKUP, advice=MARKUP,
                     blame=["[/x]"]))  # fmt: skip
    text = told(verb, 0) if verb == "trial" else told(verb)
    assert text.count(SHOWN_MARKUP) >= 2
    assert "\x1b" not in text


def test_words_of_the_study_that_look_like_markup_are_shown_as_they_are(told, night):
    edit(night, "space.yaml", "id: fa3", "id: '[/fa3]'")
    edit(night, "space.yaml", "fa3 is faster", "'[red]fa3[/red] is :rocket: faster'")
    study = load_study(night)
    keep(night, launch(study, 0, "hypothesis", {"attention-backend": "fa3"}, hypothesis="[/fa3]"))
    assert told("show").count("[/fa3]") == 2
    assert "trial 0 ([/fa3])" in told("trial", 0)
    path = night / "trials.jsonl"
    path.unlink()
    assert told("plan").count("[/fa3]: [red]fa3[/red] is :rocket: faster") == 2


def test_values_that_look_like_markup_are_shown_as_they_are(told, night):
    edit(night, "space.yaml", "choices: [triton, fa3, flashinfer]",
         "choices: [triton, fa3, flashinfer, '[/b]']")  # fmt: skip
    keep(night, launch(load_study(night), 0, "search", {"attention-backend": "[/b]"}))
    for text in (told("show"), told("trial", 0), told("pareto", *AXES)):
        assert "attention-backend=[/b]" in text


def test_a_very_long_cause_is_a_line_in_tables_and_whole_with_its_trial(told, night):
    cause = "word " * 70 + "the end"
    study = load_study(night)
    keep(night, died(study, 0, {"attention-backend": "fa3"}, cause, kind="hypothesis",
                     hypothesis="fa3"))  # fmt: skip
    text = told("show")
    assert "the end" not in text
    assert text.count("…") == 3  # its hypothesis, the dead end, its trial
    assert "the end" in told("trial", 0)


def test_one_trial_in_full(told, night):
    won(night)
    text = told("trial", 5)
    for words in (
        "REHEARSAL",
        "trial 5 (search): completed",
        "changes: chunked-prefill-size=8192",
        "took: 10.0 s (start 2.0, load 7.0, stop 0.5) from 2026-01-01T",
        "command: serve\nlog: night/trials/0005/server.log",
    ):
        assert words in text, words
    assert re.search(r"^ 8 +96 +192 +50 / 50 +83.33 / 83.33 +- +- +10 +0", text, re.M)
    dead = told("trial", 4)
    assert "blamed: attention-backend\nadvice: Take less." in dead
    assert "output tok/s" not in dead


def test_what_the_machine_did_stands_below_a_trials_rungs_and_on_the_front(told, night):
    made = launch(load_study(night), 0, "search", {"attention-backend": "fa3"})
    for rung, power_w in zip(made.rungs, (300.0, 700.0), strict=False):
        use = MachineUse(power_w=power_w, energy_j=10 * power_w, unobserved=["no [power]"])
        seen = rung.model_copy(update={"machine": use.per_token(power_w * 20)})
        made = made.model_copy(
            update={"rungs": [seen if r.level == rung.level else r for r in made.rungs]}
        )
    keep(night, made)
    text = told("trial", 0)
    assert re.search(r"^ GPU power, W +300 +700", text, re.M), text
    assert re.search(r"^ output tokens a joule +2 +2", text, re.M)
    assert "\nno [power]\n" in text
    assert "tok_per_joule" in told("pareto", "tok_s_per_user", "tok_per_joule")


def test_what_it_runs_with_is_held_against_the_baseline(told, night):
    study = load_study(night)
    many = {f"flag-{n}": n for n in range(300)}
    keep(night, launch(study, 0, effective=many),
         launch(study, 1, "search", {"attention-backend": "fa3"},
                effective={**many, "flag-7": True, "flag-8": None}))  # fmt: skip
    assert "runs with, unlike the baseline: nothing (300 arguments" in told("trial", 0)
    assert "unlike the baseline: flag-7=true, flag-8 unset (300 arguments" in told("trial", 1)


def test_a_request_that_failed_is_quoted(told, night):
    study = load_study(night)
    made = launch(study, 0)
    failing = made.rungs[0].model_copy(update={"requests_failed": 2, "first_error": "[/] 500"})
    keep(night, made.model_copy(update={"rungs": [failing]}))
    assert "first error at 1: [/] 500" in told("trial", 0)


def test_a_broken_limit_is_said_with_its_trial(told, night):
    edit(night, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [output_tok_s >= 50]")
    keep(night, launch(load_study(night), 0))
    assert "breaks output_tok_s" in told("show")
    assert "breaks: output_tok_s" in told("trial", 0)


def test_large_numbers_are_written_out(told, night):
    keep(night, launch(load_study(night), 0, gain=1000.0))
    assert "80000" in told("show")
    assert "e+0" not in told("show") + told("trial", 0) + told("pareto", *AXES)


def test_a_plan_says_phases_minutes_and_commands_and_what_is_dropped(told, night):
    text = told("plan")
    assert re.search(r"^ calibrate +baseline: noise floor +3 +0\.2 *$", text, re.M)
    assert "\n# hypotheses: fa3: fa3 is faster\n" in text
    assert "--attention-backend fa3" in text
    edit(night, "study.yaml", "trials: 26", "trials: 4")
    assert re.search(r"flashinfer: so is flashinfer +0 +0\.0 +1 *$", told("plan"), re.M)
    assert "\nThe budget has no launch for: flashinfer.\n" in told("plan")


def test_check_and_plan_say_what_is_not_searched_and_plan_what_was_not_verified(told, night):
    edit(
        night, "space.yaml", "parameters:\n", "parameters:\n  old: {type: bool, versions: '<0.5'}\n"
    )
    for verb in ("check", "plan"):
        assert "\nnot in rehearsal 0.5.9: old (versions <0.5)\n" in told(verb)
    edit(night, "study.yaml", "model: small", "model: small\nfixed: {flags: {no-such-flag: 1}}")
    assert re.search(
        r"Could not be verified here: \S+/study\.yaml:\d+:17: fixed\.flags\.no-such-flag: unknown"
        r" flag 'no-such-flag', expected a flag of rehearsal of SGLang 0\.5\.9 ",
        " ".join(told("plan").split()),
    )


def test_a_plan_of_a_used_up_budget_says_so(told, night):
    won(night)
    edit(night, "study.yaml", "trials: 26", "trials: 11")
    text = told("plan")
    assert "11 launches made: the budget is used up. A larger one continues the study." in text


def test_long_nights_are_told_in_hours(night, capsys):
    made = inspect.plan(night).model_copy(update={"minutes": 480.0, "rehearsal": False})
    console.show_plan(made)
    text = capsys.readouterr().out
    assert "8.0 hours." in text
    assert "REHEARSAL" not in text
    assert not text.startswith("\n")


def test_the_front_is_drawn_and_listed(told, night):
    won(night)
    text = told("pareto", *AXES)
    assert re.search(r"^  \|A", text, re.M) or re.search(r"^  \|.*B", text, re.M)
    assert re.search(r"^ A +1 +24 +24 +5, 6, 8, 10 +chunked-prefill-size=8192", text, re.M)
    assert re.search(r"^ B +8 +12 +96 +5, 6, 8, 10 ", text, re.M)


def point(x: float, y: float) -> ParetoPoint:
    return ParetoPoint(key="k", trials=(0,), level=None, x=x, y=y)


def drawn(*points: ParetoPoint) -> list[str]:
    made = Front(study="s", rehearsal=False, x="x", y="y", points=list(points), changes={"k": {}})
    return front._chart(made).splitlines()


def test_the_best_x_is_on_the_right_and_the_best_y_on_top():
    lines = drawn(point(10, 5), point(5, 10))
    assert lines[0] == "  y, 5 to 10"
    assert lines[1] == "  |B" + " " * 59
    assert lines[14] == "  |" + " " * 59 + "A"
    assert lines[-1] == "   x, 5 to 10"


def test_a_single_point_is_drawn():
    assert drawn(point(1, 1))[14].startswith("  |A")


def test_points_on_one_place_are_all_seen():
    text = "\n".join(drawn(*(point(1 + n / 1e6, 2 - n / 1e6) for n in range(3)), point(2, 1)))
    assert all(mark in text for mark in "ABCD")


def test_a_wide_range_is_drawn_on_a_log_scale_and_says_so():
    lines = drawn(point(1000, 1), point(100, 2), point(10, 3))
    assert lines[-1] == "   x, 10 to 1000 on a log scale"
    assert lines[0] == "  y, 1 to 3"
    at = next(line.index("B") for line in lines[1:-2] if "B" in line)
    assert at - 3 == round(59 / 2)


def test_more_points_than_letters_are_all_listed(capsys):
    points = [point(n, 100 - n) for n in range(60)]
    made = Front(study="s", rehearsal=False, x="x", y="y", points=points, changes={"k": {}})
    front.show_front(made)
    text = capsys.readouterr().out
    assert len(re.findall(r"^ [\w*] +ladder", text, re.M)) == 60


def test_a_terminal_gets_colours_and_no_color_none(night, monkeypatch, capsys):
    won(night)
    view = inspect.show(night)
    console.show_study(view)
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    console.show_study(view)
    text = capsys.readouterr().out
    assert "\x1b[1;32mWinner: chunked-prefill-size=8192" in text


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_narrow_terminal_loses_no_change_and_no_cause(night, monkeypatch, capsys, columns):
    won(night)
    monkeypatch.setattr(terminal, "WIDE", columns)
    console.show_study(inspect.show(night))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    trials = text[text.index(" trial  what") : text.index("11 launches")].splitlines()
    at = trials[0].index("time") + len("time  ")
    said = "".join(line[at:].rstrip() for line in trials[1:]).replace(" ", "")
    assert said.count("chunked-prefill-size=8192") == 4
    assert "attention-backend=flashinferdiedwhileloading:Notenoughmemory.[oom]" in said


def test_rates_give_way_where_there_is_no_room(night, monkeypatch, capsys):
    won(night)
    for columns, shown in ((93, 0), (94, 2)):
        monkeypatch.setattr(terminal, "WIDE", columns)
        console.show_study(inspect.show(night))
        assert capsys.readouterr().out.count("tok/s ") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc\r", "a b c "),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b[2J\x1b[H", ""),
        ("bell\x07 \u202eback", "bell   back"),
        ("größe 数 [/x]", "größe 数 [/x]"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_printed(text, shown):
    assert plain(text) == shown


def test_a_line_is_cut_only_where_it_is_too_long():
    assert one_line("a  b\nc") == "a b c"
    assert one_line("x" * 10, 10) == "x" * 10
    assert one_line("x" * 11, 10) == "x" * 8 + " …"


def test_changes_are_spelt_as_one_would_type_them():
    assert said_changes({}) == "the baseline"
    assert said_changes({"a": True, "b": None, "c": 0.5, "d": "x"}) == "a=true, b unset, c=0.5, d=x"
