"""An engine asked in its own interpreter: what comes back, how it is kept, and when there is none.

The engines are small packages; the one on the machine is asked in test_flags_vllm.py.
"""

import sys
from pathlib import Path

import pytest

from tests.test_flags_declared import OLD
from tuner.flags import cache, probe

READER = "def run(args):\n    return args.tensor_parallel_size, args.runner, args.fast\n"


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """No answer is remembered from another test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    probe._ask.cache_clear()
    yield
    probe._ask.cache_clear()


@pytest.fixture
def engine(tmp_path):
    """An engine that is installed in a folder of its own."""
    root = tmp_path / "site"
    (root / "sglang" / "srt").mkdir(parents=True)
    for package in (root / "sglang", root / "sglang" / "srt"):
        (package / "__init__.py").write_text("")
    (root / "sglang" / "srt" / "server_args.py").write_text(OLD)
    (root / "sglang" / "srt" / "reader.py").write_text(READER)
    metadata = root / "sglang-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")
    return root


def ask(folder: Path, *words: str, **env: str):
    return probe.ask(
        words or (sys.executable,),
        {"PYTHONPATH": str(folder), **env},
        engine="sglang",
        distributions=("sglang",),
    )


def test_flags_deaths_and_variables_come_back_together(engine):
    (engine / "sglang" / "srt" / "env.py").write_text("NAME = 'SGLANG_ONE'\n")
    found = ask(engine)
    assert found is not None
    assert (found.title, found.how) == ("sglang 9.9", "parser")
    assert found.find("tp-size") == found.find("tensor-parallel-size")
    assert found.is_dead("steps")
    assert found.is_dead("older")
    assert not found.is_dead("fast")
    assert found.dead["steps"].startswith("sglang/srt/server_args.py:")
    assert found.variables == ["SGLANG_ONE"]


def test_a_flag_whose_action_is_the_engines_own_code_is_never_dead(engine):
    found = ask(engine)
    assert found is not None
    assert found.find("paths") is not None
    assert not found.is_dead("paths")


def test_without_what_the_engine_imports_its_source_is_read(engine):
    args = engine / "sglang" / "srt" / "server_args.py"
    args.write_text(f"import no_such_module\n{OLD}")
    found = ask(engine)
    assert found is not None
    assert found.how == "source"
    assert found.is_dead("steps")


def test_it_is_asked_through_a_prefix_with_the_variables_of_the_launch(engine):
    found = ask(engine, "env", "UNUSED=1", sys.executable)
    assert found is not None
    assert found.version == "9.9"


def test_it_is_asked_once_until_one_of_its_files_changes(engine):
    reader = engine / "sglang" / "srt" / "reader.py"
    first = ask(engine)
    (kept,) = cache.folder().iterdir()
    kept.write_text(kept.read_text().replace('"tensor-parallel-size"', '"from-the-cache"'))
    probe._ask.cache_clear()
    again = ask(engine)
    assert again is not None
    assert again.find("from-the-cache") is not None
    reader.write_text(READER + "def more(args):\n    return args.steps\n")
    probe._ask.cache_clear()
    changed = ask(engine)
    assert first is not None
    assert changed is not None
    assert first.is_dead("steps")
    assert not changed.is_dead("steps")
    assert changed.find("from-the-cache") is None


@pytest.mark.parametrize(
    "words",
    [("/no/such/python",), ("false",), ("echo", "not json"), (sys.executable, "-c", "exit(1)")],
    ids=" ".join,
)
def test_who_cannot_be_asked_has_no_catalogue(engine, words):
    assert ask(engine, *words) is None


def test_an_interpreter_without_the_engine_has_no_catalogue(tmp_path):
    assert ask(tmp_path) is None


def test_an_engine_that_declares_nothing_that_can_be_read_has_no_catalogue(engine):
    (engine / "sglang" / "srt" / "server_args.py").write_text("import no_such_module\n")
    assert ask(engine) is None
    assert not cache.folder().exists()


def test_an_engine_that_never_answers_is_given_up(engine, monkeypatch):
    monkeypatch.setattr(probe, "STAMP_TIMEOUT_S", 0.2)
    assert ask(engine, "sleep", "20") is None
