"""Which texts are the address of a Ray cluster."""

import pytest

from tuner.definitions.addresses import cluster_address


@pytest.mark.parametrize(
    ("text", "place"),
    [("head:6379", ("head", 6379)), ("10.0.0.1:1", ("10.0.0.1", 1)), ("[::1]:80", ("::1", 80))],
)
def test_host_and_port_are_an_address(text, place):
    assert cluster_address(text) == place


@pytest.mark.parametrize(
    "text",
    ["", "head", "head:", ":6379", "head:0", "head:65536", "head:x", "ray://head:10001", "a b:1",
     "http://head:1", "user@head:1", "::1:80", "local"],
)  # fmt: skip
def test_anything_else_is_none(text):
    assert cluster_address(text) is None
