"""What is said where limits are broken: by all, by the baseline alone, by all but the baseline."""

import pytest

from tests.evening import edit, folder, keep, launch
from tests.nights import BASELINE, Night, distribution, objective, record, rung
from tuner.console.front import show_front
from tuner.definitions.validation import load_study
from tuner.records import Records
from tuner.verbs import inspect
from tuner.verdicts.decision import conclusion
from tuner.verdicts.limits import worst
from tuner.verdicts.score import Breach
from tuner.views.export import export
from tuner.views.forms import written

LIMITED = objective((1, 10), slos=["ttft_ms p99 <= 200"])


def slow(night: Night, ttft_ms: dict[str, float]) -> Night:
    """The same launches; configurations by name have that TTFT (p50; p99 is half more)."""
    night.records = [
        record(r.number, r.kind, r.key, [
            rung(int(m.level), m.output_tok_s,
                 ttft_ms=distribution(ttft_ms.get(r.key, 100.0) + m.level))
            for m in r.rungs])
        for r in night.records
    ]  # fmt: skip
    return night


def night(*searched: str, confirmed: int = 0) -> Night:
    made = Night(1, sd=0.001, base={1: 10.0, 10: 40.0})
    made.baseline(3)
    for key in searched:
        made.launch("search", key, 0.1)
    for _ in range(confirmed):
        made.launch("confirm", searched[0], 0.1)
        made.baseline()
    return made


def sentence(made: Night) -> str:
    return conclusion(made.records, LIMITED, BASELINE).sentence


def test_where_nothing_is_feasible_that_is_said_with_the_numbers_and_no_gain_is_spoken_of():
    made = slow(night("a", "b"), {BASELINE: 500.0, "a": 400.0, "b": 600.0})
    found = conclusion(made.records, LIMITED, BASELINE)
    assert found.sentence == (
        "Nothing is feasible: the baseline breaks ttft_ms p99 <= 200 at 10: found 765, and the"
        " 2 other configurations that were measured break a limit too; nearest to its limit is"
        " trial 3: ttft_ms p99 <= 200 at 10: found 615."
    )
    assert found.detectable_percent is None
    assert found.winner_key is None


def test_a_feasible_configuration_beside_an_infeasible_baseline_is_news():
    made = slow(night("a", "b"), {BASELINE: 500.0, "b": 600.0})
    assert sentence(made) == (
        "The baseline breaks ttft_ms p99 <= 200 at 10: found 765; 1 of 2 other configurations kept"
        " every limit, and none is a winner yet: none launched afresh."
    )
    once = slow(night("a", "b", confirmed=1), {BASELINE: 500.0, "b": 600.0})
    assert sentence(once).endswith(
        "and none is a winner yet: the best that was launched afresh: 1 of the 2 fresh launches"
        " that a winner needs."
    )
    won = slow(night("a", "b", confirmed=2), {BASELINE: 500.0, "b": 600.0})
    assert sentence(won).startswith(
        "Keeps to every limit, where the baseline breaks ttft_ms p99 <= 200 at 10: found 765: +1"
    )


def test_a_baseline_that_alone_keeps_the_limits_is_said_to():
    made = slow(night("a", "b"), {"a": 400.0, "b": 600.0})
    assert sentence(made) == (
        "No configuration beats the baseline: it keeps every limit, the 2 other configurations that"
        " were measured break one; nearest to its limit is trial 3: ttft_ms p99 <= 200 at 10:"
        " found 615."
    )


def test_what_shows_no_number_is_not_the_nearest_to_its_limit():
    """An answer that took longer than the window has no end in it."""
    asked = objective((1, 10), slos=["e2e_ms p50 <= 20000"])

    def said(e2e_ms: dict[str, float | None]) -> str:
        made = night("a", "b")
        records = [
            r.model_copy(update={"rungs": [
                m.model_copy(update={"e2e_ms": None if (ms := e2e_ms.get(r.key)) is None
                                     else distribution(ms)})
                for m in r.rungs
            ]})
            for r in made.records
        ]  # fmt: skip
        return conclusion(records, asked, BASELINE).sentence

    assert said({BASELINE: 30000.0, "b": 25000.0}).endswith(
        "; nearest to its limit is trial 4: e2e_ms p50 <= 20000 at 1: found 2.5e+04."
    )
    assert said({}) == (
        "Nothing is feasible: the baseline breaks e2e_ms p50 <= 20000 at 1: found nothing to show"
        " it, and the 2 other configurations that were measured break a limit too."
    )


def test_a_baseline_that_breaks_its_limits_alone_is_said_to():
    assert sentence(slow(night(), {BASELINE: 500.0})) == (
        "No verdict: nothing but the baseline was measured over the whole ladder yet, and it breaks"
        " ttft_ms p99 <= 200 at 10: found 765 in 3 of 3 launches."
    )


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ([("ttft_ms p99 <= 200", 300), ("output_tok_s >= 100", 10)], 1),
        ([("ttft_ms p99 <= 200", 300), ("output_tok_s >= 100", 90)], 0),
        ([("ttft_ms p99 <= 200", None), ("ttft_ms p99 <= 200", 201)], 1),
        ([("ttft_ms p99 <= 200", 900), ("output_tok_s > 5", 0)], 1),
    ],
)
def test_the_worst_number_is_the_furthest_from_its_limit(limits, found):
    broken = [Breach(at="1", limit=limit, found=number) for limit, number in limits]
    assert worst(broken) is broken[found]


@pytest.fixture
def limited(tmp_path, monkeypatch):
    made = folder(tmp_path)
    edit(made, "objective.yaml", "window_s: 20", "window_s: 20\nslos: [ttft_ms p99 <= 0.001]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    study = load_study(made)
    keep(made, *(launch(study, n, gain=1 + 0.001 * n) for n in range(3)))
    return made


def test_an_export_warns_of_the_limits_that_its_launch_breaks(limited):
    study = load_study(limited)
    made = export(study, list(Records(limited)))
    warning = "WARNING: it breaks ttft_ms p99 <= 0.001 at 1: found 50"
    assert made.why.endswith(f" This is the baseline. {warning} in 3 of 3 launches.")
    comment = next(line for line in written(made, "shell").splitlines() if "WARNING" in line)
    assert comment.startswith("# ")
    asked = export(study, list(Records(limited)), 1)
    assert asked.why == f"Trial 1, as asked for: completed. {warning}."


def test_a_front_without_a_feasible_launch_says_so(limited, capsys):
    show_front(inspect.pareto(limited, "tok_s_per_user", "tok_s_per_gpu"))
    assert (
        "All 3 launches that completed break a limit, so that nothing is feasible; the worst:"
        " ttft_ms p99 <= 0.001 at 1: found 50."
    ) in capsys.readouterr().out.replace("\n", " ")
