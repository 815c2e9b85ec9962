"""When a window opens and ends: by simulation, since no single server shows what is usual."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tuner.load.pace import LONGEST_WARMUP, LONGEST_WINDOW, Ended, Pace, jumps, rises, tight

LOOK_S = 0.1
TOK_S = 500.0

Rate = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    opened_s: float
    window_s: float
    rate: float
    stable: bool
    ended: Ended


def played(
    rate: Rate,
    *,
    warmup_s: float = 10.0,
    window_s: float = 20.0,
    precision_percent: float | None = None,
    least_requests: int = 0,
    requests_s: float = 5.0,
) -> Seen:
    """What a client would do that looks at a server of that rate."""
    pace = Pace(
        warmup_s=warmup_s,
        window_s=window_s,
        streams=10,
        precision_percent=precision_percent,
        least_requests=least_requests,
    )
    looks, events = 0, 0.0

    def step() -> tuple[float, int]:
        nonlocal looks, events
        looks += 1
        events += rate(looks * LOOK_S) * LOOK_S
        return looks * LOOK_S, int(events)

    while not pace.opens(*step()):
        pass
    start_s, before = looks * LOOK_S, events
    pace.opened(start_s, int(events))
    while True:
        at_s, count = step()
        if pace.ends(at_s, count, int((at_s - start_s) * requests_s)):
            break
    length_s = at_s - start_s
    return Seen(
        opened_s=start_s,
        window_s=length_s,
        rate=(events - before) / length_s,
        stable=pace.stable,
        ended=pace.ended,
    )


def noisy(seed: int, *, sd: float, correlation: float = 0.0) -> Rate:
    """A steady server whose steps have noise that lasts (an AR(1) of looks)."""
    rng = random.Random(seed)
    state = rng.gauss(0, 1)

    def rate(at_s: float) -> float:
        nonlocal state
        fresh = math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
        state = correlation * state + fresh
        return max(0.0, TOK_S * (1 + sd * state))

    return rate


def ramp(seed: int, seconds: float) -> Rate:
    """A server that comes to its speed by and by."""
    noise = noisy(seed, sd=0.05)
    return lambda at_s: (1 - math.exp(-at_s / seconds)) * noise(at_s)


def step(seed: int, until_s: float) -> Rate:
    """A server that is a tenth as fast until a certain moment."""
    noise = noisy(seed, sd=0.05)
    return lambda at_s: (0.1 if at_s < until_s else 1.0) * noise(at_s)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_steady_server_waits_hardly_longer_than_was_asked(correlation: float) -> None:
    """Lasting noise has trends of its own: they may cost a slice or two now and then."""
    seen = [played(noisy(n, sd=0.05, correlation=correlation)) for n in range(200)]
    assert all(one.stable for one in seen)
    assert sum(one.opened_s for one in seen) / len(seen) < 10.0 * 1.05
    assert max(one.opened_s for one in seen) <= 20.0


def test_a_ramp_is_waited_for() -> None:
    for seed in range(50):
        seen = played(ramp(seed, seconds=5.0))
        assert seen.stable
        assert 1 - math.exp(-seen.opened_s / 5.0) > 0.85
    slow = [played(ramp(seed, seconds=5.0)).opened_s for seed in range(50)]
    assert sum(slow) / len(slow) > 13.0


def test_a_ramp_without_end_is_measured_and_said() -> None:
    for seed in range(20):
        seen = played(ramp(seed, seconds=40.0))
        assert not seen.stable
        assert seen.opened_s == pytest.approx(LONGEST_WARMUP * 10.0, rel=0.1)


def test_a_server_that_only_just_got_fast_is_given_time_to_show_it() -> None:
    late = [played(step(seed, until_s=9.5)) for seed in range(50)]
    assert sum(one.opened_s for one in late) / len(late) > 10.8
    assert all(one.stable for one in late)
    early = [played(step(seed, until_s=5.5)) for seed in range(50)]
    assert sum(one.opened_s for one in early) / len(early) < 10.5


@pytest.mark.parametrize("silent_s", [22.0, 38.0, 50.0])
def test_a_server_that_is_silent_through_the_longest_warm_up_is_not_settled(
    silent_s: float,
) -> None:
    """Compiling, it may say nothing at all for minutes; then too few events come for a trend."""

    def heard(tok_s: float) -> Callable[[float], float]:
        return lambda at_s: tok_s if at_s > silent_s else 0.0

    for tok_s in (1.0, TOK_S):
        seen = played(heard(tok_s))
        assert not seen.stable
        assert seen.opened_s == pytest.approx(LONGEST_WARMUP * 10.0, rel=0.01)


def test_silence_at_first_is_waited_out() -> None:
    seen = played(lambda at_s: TOK_S if at_s > 8.0 else 0.0)
    assert seen.stable
    assert 16.0 < seen.opened_s < 19.0


def test_the_five_looks_at_one_server_that_settles() -> None:
    """1187, 7653, 10996, 11174, 11266 tok/s, as one server gave them one after another."""
    looks = [1187.0, 7653.0, 10996.0, 11174.0, 11266.0]
    seen = played(lambda at_s: looks[min(int(at_s / 2), 4)], warmup_s=4.0)
    assert seen.stable
    assert seen.rate > 0.97 * looks[-1]


def test_a_single_stall_is_no_trend() -> None:
    stalled = [10.0, 10.1, 0.0, 9.9, 10.0, 10.1, 9.9, 10.0]
    assert not rises(stalled)
    assert not jumps(stalled)
    assert rises([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert not rises([10.0, 10.01, 10.02, 10.03, 10.04, 10.05, 10.06, 10.07])
    assert jumps([1.0, 1.1, 0.9, 1.0, 1.1, 1.0, 5.0, 5.0])


def test_what_falls_is_no_warm_up():
    falling = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert not rises(falling)
    assert not jumps([5.0, 5.1, 4.9, 5.0, 5.1, 5.0, 1.0, 1.0])


def test_a_stream_that_alternates_between_prefill_and_decoding_is_steady() -> None:
    """One stream with a long prompt: nothing for three seconds, then tokens for two."""
    seen = played(lambda at_s: 0.0 if at_s % 5 < 3 else 50.0, warmup_s=20.0)
    assert seen.stable
    assert seen.opened_s < 30.0


def test_too_few_events_are_waited_for_and_not_held_against_the_server() -> None:
    seen = played(lambda at_s: 0.5, warmup_s=5.0)
    assert seen.stable
    assert seen.opened_s == pytest.approx(LONGEST_WARMUP * 5.0, rel=0.1)


def test_no_warm_up_opens_at_once() -> None:
    assert played(noisy(1, sd=0.05), warmup_s=0.0).opened_s == pytest.approx(LOOK_S)


def test_without_a_precision_the_window_is_whole() -> None:
    seen = played(noisy(1, sd=0.001))
    assert seen.window_s == pytest.approx(20.0)
    assert seen.ended == "time"


def test_a_quiet_server_is_known_early_and_never_before_the_least() -> None:
    seen = played(noisy(1, sd=0.001), window_s=40.0, precision_percent=1.0)
    assert seen.ended == "tight"
    assert 20.0 <= seen.window_s < 22.0


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("sd", [0.02, 0.05])
def test_a_window_that_ended_early_is_within_its_precision(sd: float, correlation: float) -> None:
    """At most one in twenty ends early with a mean that is off by more than was asked for, and the
    mean over all windows is the server's, however long its noise lasts."""
    seen = [
        played(noisy(n, sd=sd, correlation=correlation), window_s=60.0, precision_percent=1.0)
        for n in range(200)
    ]
    wrong = [one for one in seen if one.ended == "tight" and abs(one.rate / TOK_S - 1) > 0.01]
    assert len(wrong) <= 0.05 * len(seen) + 2 * math.sqrt(0.05 * 0.95 * len(seen))
    mean = sum(one.rate for one in seen) / len(seen)
    assert mean == pytest.approx(TOK_S, rel=0.003)


def hidden(seed: int, *, lasts_s: float, white: float) -> Rate:
    """Noise of 2 % that lasts, under noise of single looks that is larger."""
    slow = noisy(seed, sd=0.02, correlation=math.exp(-LOOK_S / lasts_s))
    rng = random.Random(-seed)
    return lambda at_s: slow(at_s) * (1 + white * rng.gauss(0, 1))


@pytest.mark.parametrize("lasts_s", [2.0, 10.0])
@pytest.mark.parametrize("white", [0.05, 0.1, 0.2])
def test_lasting_noise_under_noise_of_events_seldom_ends_a_window(
    lasts_s: float, white: float
) -> None:
    """Where batches are short the first hides under the second, of which they know the mean."""
    seen = [
        played(hidden(n, lasts_s=lasts_s, white=white), window_s=60.0, precision_percent=1.0)
        for n in range(1, 151)
    ]
    wrong = [one for one in seen if one.ended == "tight" and abs(one.rate / TOK_S - 1) > 0.01]
    assert len(wrong) <= 0.05 * len(seen) + 2 * math.sqrt(0.05 * 0.95 * len(seen))


def stalling(seed: int, *, every_s: float, lasts_s: float) -> Rate:
    """A server that stalls now and then, as by chance, and is quiet between."""
    rng = random.Random(seed)
    noise, until_s, next_s = noisy(seed, sd=0.02), 0.0, rng.expovariate(1 / every_s)

    def rate(at_s: float) -> float:
        nonlocal until_s, next_s
        while at_s >= next_s:
            until_s, next_s = next_s + lasts_s, next_s + rng.expovariate(1 / every_s)
        return 0.0 if at_s < until_s else noise(at_s)

    return rate


@pytest.mark.parametrize(
    ("every_s", "lasts_s", "most"), [(30.0, 1.0, 0.009), (20.0, 0.5, 0.005), (15.0, 0.2, 0.002)]
)
def test_stops_favour_what_stalls_seldom_by_no_more_than_is_said(
    every_s: float, lasts_s: float, most: float
) -> None:
    """Nothing inside a window knows of what is rarer; stopped windows and whole ones of the same
    servers are held against each other."""
    rates = dict.fromkeys((1.0, None), 0.0)
    for seed in range(400):
        for precision in rates:
            server = stalling(seed, every_s=every_s, lasts_s=lasts_s)
            rates[precision] += played(server, window_s=60.0, precision_percent=precision).rate
    assert rates[1.0] / rates[None] - 1 < most


def test_batches_that_hang_together_are_not_believed() -> None:
    wave = [100 + 0.5 * math.sin(n / 10) for n in range(64)]
    assert not tight(wave, precision=0.01)
    assert tight([100 + 0.5 * (-1) ** n for n in range(64)], precision=0.01)


def test_the_window_waits_for_the_requests_of_a_percentile() -> None:
    seen = played(noisy(1, sd=0.01), least_requests=200)
    assert seen.window_s == pytest.approx(40.0, rel=0.02)
    tightest = played(noisy(1, sd=0.001), precision_percent=5.0, least_requests=100)
    assert tightest.window_s >= 20.0


def test_requests_that_do_not_come_are_not_waited_for_without_end() -> None:
    seen = played(noisy(1, sd=0.01), least_requests=100, requests_s=0.1)
    assert seen.window_s == pytest.approx(LONGEST_WINDOW * 20.0, rel=0.02)
    assert seen.ended == "time"
