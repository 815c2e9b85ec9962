import re

from tuner.definitions.models import Value
from tuner.failures.evidence import Hit, Reading
from tuner.failures.log_lines import line_at
from tuner.failures.log_phases import Phase, Stage

LOADING = "[2026-02-03 21:14:12 TP0] Load weight begin.\n"
READY = "[2026-02-03 21:14:24] The server is fired up and ready to roll!\n"
BATCH = "[2026-02-03 21:14:26 TP0] Decode batch, #running-req: 8\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
DEAD = "[2026-02-03 21:14:30 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
RETRACTED = "[2026-02-03 21:14:33 TP3] Decode out of memory happened. #retracted_reqs: 1\n"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4127, GPU has fallen off the bus.\n"
STOP = "SIGTERM received, draining\n"


def read(text: str, phase: Phase | None = None, flags: dict[str, Value] | None = None) -> Reading:
    return Reading(text, "sglang", phase, flags or {})


def first(text: str, *, died: bool = True) -> Hit | None:
    return read(text).first_cause(died=died)


def test_what_follows_a_request_to_stop_is_not_evidence() -> None:
    reading = read(READY + BATCH + STOP + DEAD + OOM)
    assert reading.text == READY + BATCH
    assert reading.ended_orderly
    assert (reading.death, reading.first_cause(died=True)) == (None, None)


def test_a_server_that_died_before_it_was_told_to_stop_did_not_end_orderly() -> None:
    reading = read(READY + DEAD + OOM + STOP)
    assert not reading.ended_orderly
    assert reading.death == "Scheduler hit an exception: Traceback (most recent call last):"


def test_a_death_counts_only_since_the_server_was_last_ready() -> None:
    reading = read(DEAD + "ValueError: no\n" + READY)
    assert reading.death is None
    assert not reading.has_traceback
    assert read(READY + DEAD).has_traceback


def test_the_last_words_are_the_last_line_that_means_anything() -> None:
    assert read(LOADING + RETRACTED + "\n\n").last_words == "Load weight begin."
    assert Reading.is_noise(RETRACTED)


def test_the_last_lines_are_looked_at_only_of_a_server_that_never_loaded() -> None:
    tail = re.compile("resolving")
    assert read("resolving\n").last_is(tail)
    assert not read("resolving\n" + "waiting\n" * 6).last_is(tail)
    assert not read("resolving\n" + LOADING).last_is(tail)


def test_a_message_is_all_its_lines_up_to_the_next_traceback() -> None:
    text = f"{LOADING}ValueError: too small\n  by 3 pages\nTraceback (most recent call last):\n"
    reading = read(text)
    message = "ValueError: too small\n  by 3 pages"
    assert reading.message(line_at(text, text.index("too small"))) == message
    assert reading.message(line_at(text, text.index("by 3"))) == message


def test_flags_are_those_of_the_message_or_else_of_the_lines_that_raised_it() -> None:
    flags: dict[str, Value] = {"page-size": 64, "tp-size": 8}
    text = f'{DEAD}  File "a.py", line 1, in f\n    assert args.page_size > 0\nAssertionError\n'
    assert read(text, flags=flags).flags_of(line_at(text, len(text) - 2)) == ["page-size"]
    text = text.replace("AssertionError", "AssertionError: --tp-size is odd")
    assert read(text, flags=flags).flags_of(line_at(text, len(text) - 2)) == ["tp-size"]


def test_a_nearer_cause_wins_over_an_earlier_report_and_hardware_over_all() -> None:
    kinds = [
        hit.rule.kind
        for log in (LOADING + DEAD + OOM, LOADING + OOM + XID, XID + READY + BATCH)
        if (hit := first(log))
    ]
    assert kinds == ["oom_load", "gpu_hw", "gpu_hw"]


def test_of_equal_causes_the_first_counts_and_its_number_is_read() -> None:
    hit = first(f"{LOADING}AssertionError: 99 is not divisible by 24\n{OOM}{OOM}")
    assert hit is not None
    assert hit.number == 24
    other = first(LOADING + OOM + OOM.replace("1.00", "2.00"))
    assert other is not None
    assert (other.number, other.line.body) == (None, OOM.strip())


def test_a_hit_knows_what_its_rank_was_doing() -> None:
    frame = '[TP0] Traceback (most recent call last):\n  File "a.py", line 1, in load_model\n'
    for log, stage in (
        (LOADING + OOM, Stage.LOADING),
        (READY + BATCH + DEAD + OOM, Stage.SERVING),
        (frame + OOM, Stage.LOADING),
    ):
        hit = first(log)
        assert hit is not None
        assert hit.stage is stage


def test_the_cause_of_an_invalid_field_names_the_field() -> None:
    log = (
        "block_size\n  Input should be 1 or 8 [type=literal_error, input_value=3, input_type=int]\n"
    )
    hit = first(log)
    assert hit is not None
    assert read(log).cause(hit) == "block_size: Input should be 1 or 8"
