"""What one study learns of a crash, and what the next one does with it."""

import json
from dataclasses import replace

import pytest

from tests.nightly import Heard, SimulatedExecutor, completed, space, study
from tests.samples import OBJECTIVE, record
from tuner import engines
from tuner.failures.classifier import Failure
from tuner.night.known import (
    FILE,
    Known,
    KnownFailure,
    Remembering,
    hardware_of,
    known_failures,
    named_of,
    said,
    values_of,
)
from tuner.night.study import StudyRun
from tuner.records import Records
from tuner.search.searcher import Searcher

HARDWARE = "8 GB of nothing"
FAULT = Failure(
    kind="oom_graph", cause="CUDA out of memory", action="never", advice="Lower it.",
    phase="capturing", blame=["chunk"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def version(monkeypatch):
    """The engine that is installed, as far as anybody asks."""
    installed = {"vllm": "0.32.0"}
    monkeypatch.setattr(engines, "version", lambda spec: installed["vllm"])
    return installed


def failed(order, fault=FAULT, **changes):
    record = completed(order, 1.0, outcome="failed", failure=fault)
    return record.model_copy(update={"rungs": [], **changes})


def where(folder, name, **changes):
    (folder / name).mkdir(exist_ok=True)
    loaded = study(folder / name, {"trials": 16})
    return replace(loaded, space=space(**changes)) if changes else loaded


def night(folder, name, outcome, **changes):
    """Run a study that tells and hears of crashes; (the study, the orders that were launched)."""
    loaded = where(folder, name, **changes)
    executor, records = SimulatedExecutor(outcome), Records(loaded.folder)
    searcher = Searcher(loaded.space, sampler="TPESampler", seed=1, journal=None, name=name)
    for crash in known_failures(loaded, HARDWARE).failures:
        searcher.warn(values_of(loaded.space, crash), named_of(loaded.space, crash))
    memory = Remembering(loaded, HARDWARE, before=list(records))
    StudyRun(loaded, records, executor, searcher, Heard(), memory.look).run()
    return loaded, executor.orders


def no_chunk_of_4(order):
    return failed(order) if order.values["chunk"] == 4 else completed(order, 1.0)


def kept(folder):
    path = folder / FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_crash_is_written_with_its_cause_its_flags_and_where_it_is_from(tmp_path):
    night(tmp_path, "first", no_chunk_of_4)
    first = kept(tmp_path)[0]
    assert {name: first[name] for name in ("schema_number", "engine", "version", "model")} == {
        "schema_number": 1,
        "engine": "vllm",
        "version": "0.32.0",
        "model": "m",
    }
    assert (first["hardware"], first["study"], first["kind"]) == (HARDWARE, "first", "oom_graph")
    assert (first["cause"], first["blame"]) == ("CUDA out of memory", ["chunk"])
    assert first["flags"]["chunk"] == 4
    numbers = [each["trial"] for each in kept(tmp_path)]
    assert len(numbers) == len(set(numbers))


def test_the_next_study_is_told_and_its_search_leaves_it_out(tmp_path):
    night(tmp_path, "first", no_chunk_of_4)
    loaded = where(tmp_path, "second")
    (sentence,) = said(loaded, known_failures(loaded, HARDWARE))
    assert sentence.startswith("chunk=4 died on this engine, model and hardware in study first, tr")
    assert "while capturing: CUDA out of memory; hypothesis slow is stated" in sentence
    assert sentence.endswith(" and is launched all the same, the search leaves it out")


def test_the_search_leaves_out_what_is_known_and_comes_to_it_where_nothing_is(tmp_path):
    def searched(name):
        _, orders = night(tmp_path, name, no_chunk_of_4, hypotheses=[])
        assert all(order.hypothesis is None for order in orders)
        return sum(order.values["chunk"] == 4 for order in orders)

    assert searched("first") > 0
    assert searched("second") == 0
    (tmp_path / FILE).unlink()
    assert searched("third") > 0


@pytest.mark.parametrize("other", ["version", "hardware", "model", "forgotten", "own"])
def test_what_is_of_another_key_or_deleted_is_not_offered(tmp_path, version, other):
    night(tmp_path, "first", no_chunk_of_4)
    loaded, hardware = where(tmp_path, "first" if other == "own" else "second"), HARDWARE
    if other == "version":
        version["vllm"] = "0.33.0"
    if other == "hardware":
        hardware = "another"
    if other == "model":
        changed = loaded.definition.model_copy(update={"model": "another"})
        object.__setattr__(loaded, "definition", changed)
    if other == "forgotten":
        (tmp_path / FILE).unlink()
    assert known_failures(loaded, hardware) == Known()


def test_what_died_under_a_load_that_this_study_does_not_play_is_not_offered(tmp_path):
    night(tmp_path, "first", no_chunk_of_4)
    lines = [{**line, "level": 4096.0, "phase": "serving"} for line in kept(tmp_path)]
    (tmp_path / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert known_failures(where(tmp_path, "second"), HARDWARE).failures == ()
    assert max(rung.level for rung in OBJECTIVE.ladder) < 4096


def test_a_line_that_cannot_be_read_is_said_and_the_others_are(tmp_path):
    night(tmp_path, "first", no_chunk_of_4)
    path = tmp_path / FILE
    path.write_text('{"schema_number": 2}\nnonsense\n' + path.read_text())
    found = known_failures(where(tmp_path, "second"), HARDWARE)
    assert found.failures
    assert [line.split(": ")[0] for line in found.unread] == [f"{path}:1", f"{path}:2"]


def test_a_host_that_breaks_teaches_nothing_of_configurations(tmp_path):
    def breaks(order):
        return failed(order) if order.number >= 4 else completed(order, 1.0)

    night(tmp_path, "first", breaks)
    assert kept(tmp_path) == []


def test_a_crash_that_is_sure_only_after_a_restart_is_written_then_and_once(tmp_path):
    loaded = where(tmp_path, "first")

    def made(number, chunk, kind="search", **changes):
        values = loaded.space.configuration({"chunk": chunk})
        return record(number, kind, key=values.key, values=values.as_dict(), **changes)

    died = {"outcome": "failed", "failure": FAULT, "rungs": []}
    records = [made(0, 1, "baseline"), made(1, 4, **died)]
    Remembering(loaded, HARDWARE, before=[]).look(records)
    assert kept(tmp_path) == []  # it died last: that may have been the host
    records = [*records, made(2, 1, "baseline")]
    Remembering(loaded, HARDWARE, before=records[:2]).look(records)
    assert [each["trial"] for each in kept(tmp_path)] == [1]
    Remembering(loaded, HARDWARE, before=records).look([*records, made(3, 2)])
    assert [each["trial"] for each in kept(tmp_path)] == [1]


def test_a_folder_that_cannot_be_written_costs_no_launch(tmp_path, caplog):
    (tmp_path / FILE).mkdir()
    loaded, orders = night(tmp_path, "first", no_chunk_of_4)
    assert len(orders) > 10
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / FILE}: cannot be written: Is a directory; crashes are not kept"
    ]
    assert loaded.folder.name == "first"
    assert "is a folder" in known_failures(where(tmp_path, "second"), HARDWARE).unread[0]


def test_what_nothing_of_a_study_can_come_to_is_not_said(tmp_path):
    night(tmp_path, "first", no_chunk_of_4)
    line = KnownFailure.model_validate(kept(tmp_path)[0])
    loaded = where(tmp_path, "second")
    other = line.model_copy(update={"blame": ["page-size"], "flags": {"page-size": 3}})
    assert said(loaded, Known(failures=(other,))) == []
    base = line.model_copy(update={"blame": ["chunk"], "flags": {"chunk": 1}})
    assert said(loaded, Known(failures=(base,)))[0].endswith(
        "; the baseline has it as well and is launched all the same"
    )


def test_hardware_is_the_gpus_or_else_the_cpu():
    assert hardware_of({"hardware": {"gpu model": ["H200"], "cpu model": ["x"]}}) == "H200"
    assert hardware_of({"hardware": {"gpu model": ["none"], "cpu model": ["x", "y"]}}) == "x + y"
