"""How long a server is waited for, told by a clock of the test's own."""

import pytest

from tuner.night.patience import Look, Patience, Pulse, Work

STALL_S = 120.0


class Started:
    """A server that is looked at ten times in each of the stall's seconds."""

    def __init__(self, engine="sglang", step_s=6.0):
        self.patience = Patience(engine=engine, begun_s=0.0, stall_s=STALL_S)
        self.step_s = step_s
        self.now_s = self.cpu_s = self.read = 0.0

    def phase(self) -> str:
        return self.patience.phase

    def passes(self, seconds, *, cores=0.0, reads=0.0, says="", listens=False, unfinished=0):
        """Let time pass; the verdict once there is one. `says` may count with {n}."""
        for n in range(int(seconds / self.step_s)):
            self.now_s += self.step_s
            self.cpu_s += cores * self.step_s
            self.read += reads * self.step_s
            found = self.patience.look(
                Look(
                    now_s=self.now_s,
                    lines=says.format(n=n),
                    unfinished=unfinished,
                    listens=listens,
                    work=Work(cpu_s=self.cpu_s, read_bytes=self.read),
                )
            )
            if found:
                return found
        return ""


def test_a_start_without_a_sign_of_life_is_given_up_after_the_stall():
    one = Started()
    assert one.passes(60, cores=1.0, says="line {n}\n") == ""
    assert one.passes(120) == ""
    said = "no sign of life for 126 s: no new line, no work, no reading"
    assert one.passes(12) == said


def test_a_compiler_at_work_for_fifteen_minutes_is_waited_for():
    one = Started()
    assert one.passes(30, cores=1.0, says="Capture cuda graph begin {n}\n") == ""
    assert one.phase() == "capturing"
    assert one.passes(900, cores=1.0) == ""
    assert one.passes(6, says="The server is fired up and ready to roll!\n") == ""
    assert one.phase() == "ready"
    assert one.patience.phase_s["capturing"] >= 900


def test_a_hang_that_spins_is_given_up_after_ten_times_as_long():
    one = Started()
    assert one.passes(1200, cores=8.0) == ""
    assert one.passes(60, cores=8.0) == "nothing new in its log for 1206 s, though it works"


def test_weights_that_are_read_are_a_sign_of_life():
    one = Started()
    assert one.passes(600, reads=5e6) == ""
    assert one.passes(600, reads=1e3).startswith("no sign of life")


def test_threads_that_only_look_at_the_clock_are_none():
    assert Started().passes(600, cores=0.05).startswith("no sign of life")


def test_a_progress_bar_is_a_sign_of_life_before_its_line_ends():
    one = Started()
    for written in range(100, 2000, 100):
        assert one.passes(60, unfinished=written) == ""
    assert one.passes(600, unfinished=1900).startswith("no sign of life")


@pytest.mark.parametrize(
    "says",
    [
        "No available shared memory broadcast block found in 60 seconds.\n",
        "[2026-01-01 00:00:{n:02} TP0] still waiting\n",
        'INFO:     127.0.0.1:{n} - "GET /health HTTP/1.1" 503 Service Unavailable\n',
        'INFO:     127.0.0.1:{n} - "POST /generate HTTP/1.1" 200 OK\n',
    ],
)
def test_what_is_said_over_and_over_is_nothing_new(says):
    assert Started().passes(600, says=says).startswith("no sign of life")


def test_a_server_that_listens_has_a_deadline_whatever_it_says():
    one = Started()
    assert one.passes(60, cores=1.0, says="warming up {n}\n") == ""
    assert one.passes(1200, cores=1.0, says="still {n}\n", listens=True) == ""
    assert one.passes(60, listens=True) == "no token 1206 s after it began to listen"


def test_where_work_cannot_be_seen_only_the_long_deadline_counts():
    patience = Patience(engine="vllm", begun_s=0.0, stall_s=STALL_S)
    assert not any(patience.look(Look(now_s=now_s)) for now_s in range(0, 1200, 6))
    assert patience.look(Look(now_s=1206)) == "nothing new in its log for 1206 s, though it works"


def test_the_time_in_which_nobody_looked_does_not_count():
    one = Started()
    assert one.passes(60) == ""
    one.now_s += 3600
    assert one.passes(60) == ""
    assert one.passes(120).startswith("no sign of life for 12")


def test_a_short_stall_is_no_switch_that_turns_the_rule_off():
    """Looks are a tenth of a second apart: longer than a tenth of the stall."""
    patience = Patience(engine="vllm", begun_s=0.0, stall_s=0.5)
    idle = Work(cpu_s=0.0, read_bytes=0.0)
    found = [patience.look(Look(now_s=n / 10, work=idle)) for n in range(1, 10)]
    assert [bool(said) for said in found] == [False] * 5 + [True] * 4


def test_the_phases_are_those_of_the_log_in_one_direction():
    one = Started("vllm")
    one.passes(12, cores=1.0)
    one.passes(12, says="(EngineCore pid=7) Starting to load model m...\n")
    one.passes(12, says="(EngineCore pid=7) Capturing CUDA graph shapes\n")
    one.passes(12, says="(EngineCore pid=7) Loading model weights took 1 GB\n")
    assert one.phase() == "capturing"
    one.passes(12, listens=True)
    assert one.phase() == "ready"
    assert list(one.patience.phase_s) == ["starting", "loading", "capturing", "ready"]


class Loaded:
    def __init__(self):
        self.pulse = Pulse(begun_s=0.0, stall_s=STALL_S)
        self.now_s, self.pieces = 0.0, 0

    def passes(self, seconds, *, every_s=None, under_way=8):
        """Let time pass with a token each `every_s`; the verdict once there is one."""
        end_s, next_s = self.now_s + seconds, self.now_s + (every_s or 1e9)
        while self.now_s < end_s:
            self.now_s += 1.0
            if self.now_s >= next_s:
                self.pieces += 1
                next_s += every_s or 1e9
            found = self.pulse.look(self.now_s, self.pieces, under_way)
            if found:
                return found
        return ""


def test_a_load_that_hears_no_more_tokens_is_given_up_after_the_stall():
    one = Loaded()
    assert one.passes(100, every_s=1.0) == ""
    assert one.passes(119) == ""
    assert one.passes(10) == "no token from any of 8 streams for 121 s"


def test_the_first_token_may_take_as_long_as_a_compiler():
    one = Loaded()
    assert one.passes(299) == ""
    assert one.passes(10) == "no token from any of 8 streams for 301 s"


def test_who_is_slow_is_given_five_times_its_longest_pause():
    one = Loaded()
    assert one.passes(200, every_s=100.0) == ""
    assert one.passes(490) == ""
    assert one.passes(20).startswith("no token from any of 8 streams for 501 s")


def test_nothing_is_missed_while_nothing_was_asked():
    one = Loaded()
    assert one.passes(10, every_s=1.0) == ""
    assert one.passes(3600, under_way=0) == ""
    assert one.passes(119) == ""


def test_a_short_stall_is_no_switch_that_turns_the_rule_off_under_load_either():
    pulse = Pulse(begun_s=0.0, stall_s=0.5)
    assert pulse.look(0.1, 8, 8) == ""
    found = [pulse.look(n / 10, 8, 8) for n in range(2, 11)]
    assert [bool(said) for said in found] == [False] * 5 + [True] * 4


def test_a_client_that_was_frozen_starts_to_wait_anew():
    one = Loaded()
    assert one.passes(10, every_s=1.0) == ""
    one.now_s += 3600
    assert one.passes(110) == ""
