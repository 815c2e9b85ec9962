"""Whom a failure is held against: the configuration, the host, or nobody."""

import pytest

from tests.nights import failure, record
from tuner.verdicts.standing import judged, suspicious

FAULT = failure("died of it", kind="kernel_fault")
HOST = failure("no nvcc", kind="jit_build", action="stop-study")
AGAIN = failure("died once", action="once")


def base(fault=None, **changes):
    return record(0, "baseline", "base", failure=fault, **changes)


def other(key, fault=None, kind="search", **changes):
    return record(0, kind, key, failure=fault, **changes)


def night(*records):
    return [each.model_copy(update={"number": n}) for n, each in enumerate(records)]


def kept(*records):
    return [r.number for r in judged(night(*records))]


def actions(*records):
    return {r.number: r.failure.action for r in judged(night(*records)) if r.failure}


def test_failures_in_a_row_before_a_baseline_that_fails_are_nobodys():
    assert kept(base(), other("a", FAULT), other("b", FAULT), base(FAULT)) == [0, 3]


def test_a_launch_that_served_in_between_keeps_the_failures_before_it():
    assert kept(base(), other("a", FAULT), other("b"), other("c", FAULT), base(FAULT)) == [
        *(0, 1, 2, 4),
    ]


def test_what_blamed_the_host_is_nobodys_whatever_served_beside_it():
    assert kept(base(), other("a", HOST), other("b"), base(HOST)) == [0, 2, 3]


def test_failures_before_a_baseline_that_serves_stand():
    assert kept(base(), other("a", FAULT), other("b", FAULT), base()) == [0, 1, 2, 3]


def test_what_blamed_the_host_is_the_configurations_where_the_baseline_serves():
    assert actions(base(), other("a", HOST), base()) == {1: "never"}
    assert actions(base(), other("a", HOST)) == {1: "stop-study"}


@pytest.mark.parametrize("kind", ["gpu_hw", "disk_full", "fd_limit", "gpu_occupied"])
def test_what_only_a_host_can_cause_is_tried_again_where_the_baseline_serves(kind):
    fault = HOST.model_copy(update={"kind": kind})
    assert actions(base(), other("a", fault), base()) == {1: "once"}


def test_a_second_try_of_the_baseline_decides():
    assert kept(base(), other("a", FAULT), base(AGAIN), base()) == [0, 1, 2, 3]
    assert kept(base(), other("a", FAULT), base(AGAIN), base(AGAIN)) == [0, 2, 3]
    assert kept(base(), other("a", FAULT), base(FAULT), base()) == [0, 2, 3]


def test_what_a_person_cut_short_changes_nothing():
    cut = other("x", outcome="interrupted")
    assert kept(base(), other("a", FAULT), cut, base(FAULT)) == [0, 2, 3]


def test_one_that_blames_the_host_asks_for_the_baseline():
    assert suspicious(night(base(), other("a", HOST))) == "trial 1 blames the host"
    assert suspicious(night(base(), other("a", HOST), other("b"))) == "trial 1 blames the host"
    assert suspicious(night(base(), other("a", HOST), base())) == ""


def test_three_configurations_that_die_alike_ask_for_the_baseline():
    alike = [other(key, failure(f"rank {n} died at 0x{n}f")) for n, key in enumerate("abc")]
    said = "3 configurations in a row died alike"
    assert suspicious(night(base(), *alike)) == said
    assert suspicious(night(base(), *alike[:2])) == ""
    assert suspicious(night(base(), *alike[:2], other("x", outcome="interrupted"), alike[2])) == (
        said
    )
    assert suspicious(night(base(), *alike, other("d"))) == ""
    assert suspicious(night(base(), *alike, base())) == ""


def test_one_configuration_over_and_over_and_unlike_deaths_ask_for_nothing():
    assert suspicious(night(base(), *[other("a", FAULT)] * 4)) == ""
    unlike = [other(key, failure(word)) for key, word in zip("abc", "xyz", strict=True)]
    assert suspicious(night(base(), *unlike)) == ""


def test_what_names_its_flags_asks_for_nothing():
    refused = failure("--x: no", kind="arg_validation")
    assert suspicious(night(base(), *[other(key, refused) for key in "abcd"])) == ""
