"""What is played: a file, options in place of one, or options over one."""

import math
from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.verbs.asked import DEFAULT, Options, asked

OBJECTIVE = """\
ladder:
  - {concurrency: 1}
  - {concurrency: 8, slos: [ttft_ms p50 <= 9]}
input_tokens: {distribution: normal, mean: 100, sd: 10}
output_tokens: 20
window_s: 3
slos: [tpot_ms p50 <= 9]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "objective.yaml"
    path.write_text(OBJECTIVE)
    return path


def test_nothing_said_is_the_default() -> None:
    found = asked(None, Options())
    assert (found.objective, found.trace) == (DEFAULT, None)
    assert found.lengths == ((256, 128),)


def test_a_rung_that_the_file_knows_keeps_what_it_says_of_it(path: Path) -> None:
    found = asked(path, Options(concurrency=[8, 2])).objective
    assert [rung.concurrency for rung in found.ladder] == [8, 2]
    assert [rung.slos for rung in found.ladder] == [["ttft_ms p50 <= 9"], []]
    assert (found.window_s, found.slos) == (3.0, ["tpot_ms p50 <= 9"])


def test_lengths_and_a_window_are_put_over_the_files(path: Path) -> None:
    found = asked(path, Options(input_tokens=7, output_tokens=5, window_s=1.5))
    assert found.lengths == ((7, 5),)
    assert found.objective.window_s == 1.5
    assert asked(path, Options(output_tokens=5)).objective.input_tokens != 7


def test_rates_make_an_open_loop() -> None:
    found = asked(None, Options(request_rate=[0.5, 2])).objective
    assert found.by_rate
    assert [rung.said for rung in found.ladder] == ["0.5 req/s", "2 req/s"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(concurrency=[1, 100_001]), "--concurrency: found 100001, expected at most 100000"),
        (Options(request_rate=[1e6]), "--request-rate: found 1000000.0, expected at most 100000"),
        (
            Options(input_tokens=2_000_001),
            "--input-tokens: found 2000001, expected at most 2000000",
        ),
        (
            Options(output_tokens=10**9),
            "--output-tokens: found 1000000000, expected at most 2000000",
        ),
        (Options(window_s=math.inf), "--window: found inf, expected a number of seconds"),
        (Options(window_s=math.nan), "--window: found nan, expected a number of seconds"),
    ],
)
def test_what_no_file_may_say_no_option_may(options: Options, said: str) -> None:
    with pytest.raises(TunerError) as raised:
        asked(None, options)
    assert raised.value.message == said


def test_what_a_server_cannot_take_is_refused() -> None:
    found = asked(None, Options(input_tokens=100, output_tokens=50))
    found.refuse_too_long(150)
    found.refuse_too_long(None)
    with pytest.raises(TunerError, match=r"150 tokens a request are asked .* at most 149"):
        found.refuse_too_long(149)
