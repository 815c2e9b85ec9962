"""One is no plural."""

from tuner.definitions.counted import counted


def test_only_one_is_no_plural():
    assert [counted(n, "GPU") for n in (0, 1, 8)] == ["0 GPUs", "1 GPU", "8 GPUs"]
