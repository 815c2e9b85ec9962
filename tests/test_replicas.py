"""The arithmetic of hosts that hold several servers."""

import pytest

from tuner.measuring.replicas import Replicas

ONE_OF_TWO = Replicas(launched=1, of=2)


@pytest.mark.parametrize(
    ("host_gpus", "gpus", "of"),
    [(8, 8, 1), (8, 4, 2), (8, 1, 8), (8, 3, 2), (8, 5, 1), (6, 4, 1), (4, 8, 1)],
)
def test_a_host_holds_as_many_as_fit_whole_and_one_at_the_least(host_gpus, gpus, of):
    assert Replicas.on(host_gpus, gpus, full=True) == Replicas(launched=of, of=of)
    assert Replicas.on(host_gpus, gpus, full=False) == Replicas(launched=1, of=of)


def test_only_what_stands_for_others_is_extrapolated():
    assert ONE_OF_TWO.extrapolated
    assert not Replicas(launched=2, of=2).extrapolated
    assert not Replicas().extrapolated
    assert str(ONE_OF_TWO) == "1 of 2, extrapolated"
    assert str(Replicas(launched=2, of=2)) == "2 of 2"


@pytest.mark.parametrize(
    ("of", "concurrency", "streams", "factor"),
    [
        (2, 1, 1, 1.0),  # a single user stays a single user
        (2, 2, 1, 2.0),
        (2, 3, 2, 1.5),  # a half is rounded up
        (2, 5, 3, 5 / 3),
        (2, 16, 8, 2.0),
        (8, 3, 1, 3.0),
        (8, 12, 2, 6.0),
        (8, 1024, 128, 8.0),
        (1, 10, 10, 1.0),
    ],
)
def test_one_server_gets_its_share_of_the_users_and_counts_for_all(
    of, concurrency, streams, factor
):
    alone = Replicas(launched=1, of=of)
    assert alone.streams(concurrency) == streams
    assert alone.factor(concurrency) == pytest.approx(factor)


@pytest.mark.parametrize("concurrency", [1, 2, 3, 7, 1024])
def test_a_full_set_gets_every_user_and_counts_once(concurrency):
    whole = Replicas(launched=8, of=8)
    assert (whole.streams(concurrency), whole.factor(concurrency)) == (concurrency, 1.0)
