import pytest

from tuner.failures.log_lines import (
    Lines,
    block_above,
    condensed,
    line_at,
    next_line,
    previous_line,
    split_prefix,
)

BATCH = "[2026-02-03 21:14:26 TP0] Decode batch, #running-req: {}\n"
ACCESS = 'INFO:     127.0.0.1:53300 - "POST /generate HTTP/1.1" 200 OK\n'


@pytest.mark.parametrize(
    ("line", "rank", "body"),
    [
        ("[2026-02-03 21:14:12 TP3] Load weight begin.", 3, "Load weight begin."),
        ("[2026-02-03 21:14:12 DP1 TP2 EP2] Load weight begin.", 2, "Load weight begin."),
        ("[2026-02-03 21:14:12 DP1] Load weight begin.", None, "Load weight begin."),
        ("[rank5]: ValueError: no", 5, "ValueError: no"),
        ("(Worker_TP1 pid=12) loaded", 1, "loaded"),
        ("(VllmWorker rank=6 pid=12) loaded", 6, "loaded"),
        ("(EngineCore pid=7) ERROR 03-05 09:56:09 [core.py:9] it died", None, "it died"),
        ("INFO:     Application startup complete.", None, "Application startup complete."),
    ],
)
def test_a_prefix_is_taken_off_and_names_the_tensor_parallel_rank(
    line: str, rank: int | None, body: str
) -> None:
    assert split_prefix(line) == (rank, body, True)


def test_a_line_without_a_prefix_keeps_its_indent_and_loses_its_end() -> None:
    assert split_prefix("    raise ValueError(x)  \r") == (None, "    raise ValueError(x)", False)


def test_one_walks_a_log_line_by_line_and_stops_at_its_ends() -> None:
    text = "one\n[2026-02-03 21:14:12 TP1] two\nthree"
    middle = line_at(text, text.index("two"))
    assert (middle.rank, middle.body, middle.prefixed) == (1, "two", True)
    first, last = previous_line(text, middle), next_line(text, middle)
    assert first is not None
    assert last is not None
    assert (first.body, last.body) == ("one", "three")
    assert previous_line(text, first) is None
    assert next_line(text, last) is None


def test_a_long_run_of_batches_keeps_its_ends_and_its_last_batch() -> None:
    run = [BATCH.format(i) for i in range(9)] + [ACCESS]
    short = condensed("up\n" + "".join(run) + "down")
    assert short == "up\n" + run[0] + run[8] + run[9] + "down"


def test_runs_of_three_and_other_lines_stay_whole() -> None:
    text = "up\n" + BATCH.format(1) * 3 + "between\n" + ACCESS * 3 + "down\n"
    assert condensed(text) == text


def test_lines_with_several_words_are_found_once_and_in_order() -> None:
    text = "a red dog\nnothing\na red cat, red again\na blue dog\n"
    found = Lines(text).having(("dog", "red"))
    assert [line.body for line in found] == ["a red dog", "a red cat, red again", "a blue dog"]
    assert Lines(text).having(("green",)) == []


def test_of_a_word_that_floods_a_log_the_first_and_last_lines_are_found() -> None:
    flood = "".join(f"red {i}\n" for i in range(2000))
    bodies = [line.body for line in Lines(flood).having(("red",))]
    assert bodies[0] == "red 0"
    assert bodies[-1] == "red 1999"
    assert "red 1000" not in bodies
    assert len(bodies) < 500


def test_a_block_reaches_from_its_tagged_header_through_chained_exceptions() -> None:
    block = (
        "[2026-02-03 21:14:12 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in load\n'
        "KeyError: 'x'\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "b.py", line 2, in run\n'
        "ValueError: no x\n"
    )
    text = f"[2026-02-03 21:14:11 TP0] Load weight begin.\n{block}"
    found = block_above(text, line_at(text, text.index("ValueError")))
    assert found.rank == 3
    assert found.text == block.split("] ", 1)[1].rstrip("\n")


def test_a_message_alone_is_its_own_block_below_the_line_that_announces_it() -> None:
    text = "before\n[2026-02-03 21:14:12 TP2] it failed:\nValueError: no\n"
    found = block_above(text, line_at(text, text.index("ValueError")))
    assert (found.rank, found.text) == (2, "it failed:\nValueError: no")


def test_lines_alike_but_for_digits_and_ids_are_still_told_apart() -> None:
    text = "[Errno 28] of c0de\n[Errno 98] of dead\n[Errno 28] of beef\n"
    assert [line.start for line in Lines(text).having(("Errno 28",))] == [0, 38]
    assert [line.start for line in Lines(text).having(("dead", "beef"))] == [19, 38]
    assert Lines(text).having(("bead",)) == []
