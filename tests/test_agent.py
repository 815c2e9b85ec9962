import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import victims
from tests.victims import until
from tuner.errors import HostError
from tuner.hosts import agent, gpus, processes, slots
from tuner.hosts.agent import Agent
from tuner.hosts.gpus import FoundGpu
from tuner.hosts.job import JOB_VARIABLE

REAL = (
    FoundGpu(uuid="GPU-a", model="NVIDIA H200", numa=0),
    FoundGpu(uuid="GPU-b", model="NVIDIA H200", numa=0),
)


@pytest.fixture(autouse=True)
def own_run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def real_gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Two GPUs, of which only the memory can be seen."""
    used = {"GPU-a": 0.5, "GPU-b": 0.5}

    def used_memory_gb(uuids: tuple[str, ...]) -> tuple[dict[str, float], dict[str, str]]:
        lost = {each: "NVML says: GPU is lost" for each in uuids if each not in used}
        return {each: used[each] for each in uuids if each in used}, lost

    monkeypatch.setattr(gpus, "find_gpus", lambda: REAL)
    monkeypatch.setattr(gpus, "used_memory_gb", used_memory_gb)
    return used


@pytest.fixture
def orphan() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", victims.SLEEPS], env={**os.environ, JOB_VARIABLE: "job-1"}
    )
    until(lambda: processes.marks(JOB_VARIABLE, [process.pid]), "it is marked")
    yield process
    process.kill()
    process.wait()


async def owner_of(declared: int, *, use_gpus: bool = False, **options: Any) -> Agent:
    """An agent that has taken this host over."""
    owner = Agent(declared=declared, use_gpus=use_gpus, **options)
    await owner.describe(Path("/"))
    return owner


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_declared_gpus_are_numbers(tmp_path: Path) -> None:
    info, sees = asyncio.run(Agent(declared=3, use_gpus=False).describe(tmp_path))
    assert (info.gpus, info.real_gpus, info.gpu_model) == (("0", "1", "2"), False, None)
    assert sees
    assert info.cpu_model
    assert not asyncio.run(Agent(declared=1, use_gpus=False).describe(tmp_path / "no"))[1]


def test_real_gpus_are_uuids_and_as_many_as_declared(real_gpus: dict[str, float]) -> None:
    info, _ = asyncio.run(Agent(declared=1, use_gpus=True).describe(Path("/")))
    assert (info.gpus, info.real_gpus, info.gpu_model) == (("GPU-a",), True, "NVIDIA H200")
    with pytest.raises(HostError, match="has 2 GPUs, the study says 8"):
        asyncio.run(owner_of(8, use_gpus=True))


def test_gpus_are_declared_where_the_study_uses_none(real_gpus: dict[str, float]) -> None:
    info, _ = asyncio.run(Agent(declared=8, use_gpus=False).describe(Path("/")))
    assert (len(info.gpus), info.real_gpus) == (8, False)


def test_a_port_block_is_locked_checked_and_not_used_twice_running() -> None:
    async def reserve() -> None:
        one, two = await owner_of(2), await owner_of(2)
        two._next_block = one._next_block
        first = await one.reserve("a", 1)
        other = await two.reserve("a", 1)
        assert first
        assert other
        assert not set(first.ports) & set(other.ports)
        await one.settle("a", kill=False, collect=False)
        again = await one.reserve("b", 1)
        assert again
        assert not set(first.ports) & set(again.ports)
        one._next_block = two._next_block = 0
        expected = next(slots.port_blocks(agent._ephemeral_range(), 0))
        with socket.create_server(("127.0.0.1", expected[3])):
            third = await one.reserve("c", 1)
        assert third
        assert not set(expected) & set(third.ports)

    asyncio.run(reserve())


def test_what_a_job_left_is_ended_before_its_slot_is_free(
    orphan: subprocess.Popen[bytes],
) -> None:
    async def settle() -> None:
        owner = await owner_of(1)
        assert await owner.reserve("job-1", 1)
        assert await owner.reserve("job-2", 1) is None
        settled = await owner.settle("job-1", kill=False, collect=False)
        assert (settled.survivors, settled.quarantined) == (0, {})
        assert processes.read(orphan.pid) is None
        assert await owner.reserve("job-2", 1)

    asyncio.run(settle())


def test_a_job_can_be_settled_twice_at_once(orphan: subprocess.Popen[bytes]) -> None:
    async def settle() -> None:
        owner = await owner_of(1)
        assert await owner.reserve("job-1", 1)
        both = [owner.settle("job-1", kill=True, collect=False) for _ in range(2)]
        assert [settled.survivors for settled in await asyncio.gather(*both)] == [0, 0]
        assert await owner.reserve("job-2", 1)

    asyncio.run(settle())


def test_gpus_whose_memory_does_not_come_back_are_put_in_quarantine(
    real_gpus: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "_DRAIN_LIMIT_S", 0.1)

    async def settle() -> None:
        owner = await owner_of(2, use_gpus=True)
        assert await owner.reserve("job-1", 1)
        real_gpus["GPU-a"] = 40.5
        settled = await owner.settle("job-1", kill=False, collect=False)
        assert settled.quarantined == {"GPU-a": "40.0 GB are still in use on it"}
        slot = await owner.reserve("job-2", 1)
        assert slot
        assert slot.gpus == ("GPU-b",)
        assert await owner.reserve("job-3", 1) is None

    asyncio.run(settle())


def test_a_gpu_that_fell_off_the_bus_is_put_in_quarantine_and_the_others_are_not(
    real_gpus: dict[str, float],
) -> None:
    async def settle() -> None:
        owner = await owner_of(2, use_gpus=True)
        assert await owner.reserve("job-1", 2)
        del real_gpus["GPU-b"]
        settled = await owner.settle("job-1", kill=False, collect=False)
        assert settled.quarantined == {"GPU-b": "NVML says: GPU is lost"}
        assert await owner.reserve("job-2", 2) is None
        assert await owner.reserve("job-3", 1)

    asyncio.run(settle())


def test_quarantine_outlives_the_agent(real_gpus: dict[str, float]) -> None:
    async def reserve() -> None:
        owner = await owner_of(2, use_gpus=True, quarantined={"GPU-a": "40.0 GB are in use"})
        slot = await owner.reserve("job-1", 1)
        assert slot
        assert slot.gpus == ("GPU-b",)
        settled = await owner.settle("job-1", kill=False, collect=False)
        assert settled.quarantined == {"GPU-a": "40.0 GB are in use"}

    asyncio.run(reserve())


def test_ports_are_found_where_every_port_is_ephemeral(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_ephemeral_range", lambda: (1024, 65535))

    async def reserve() -> None:
        slot = await (await owner_of(1)).reserve("job-1", 1)
        assert slot
        assert len(slot.ports) == slots.PORTS_A_GPU

    asyncio.run(reserve())


def test_every_gpu_of_a_slot_brings_its_ports_and_cores() -> None:
    async def reserve() -> None:
        owner = await owner_of(4)
        slot = await owner.reserve("job-1", 4)
        assert slot
        assert len(set(slot.ports)) == 4 * slots.PORTS_A_GPU
        assert len(slot.gpu_cores) == 4
        assert {core for cores in slot.gpu_cores for core in cores} == set(slot.server_cores)
        locked = open_files()
        await owner.settle("job-1", kill=False, collect=False)
        assert open_files() == locked - 4

    asyncio.run(reserve())


def test_ports_are_let_go_of_where_there_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(slots.port_blocks(agent._ephemeral_range(), 0))[:3]
    monkeypatch.setattr(slots, "port_blocks", lambda *_: iter(few))

    async def reserve() -> None:
        owner = await owner_of(4)
        before = open_files()
        with pytest.raises(HostError, match=r"no 16 free ports in a row on .*, 4 times"):
            await owner.reserve("job-1", 4)
        assert open_files() == before
        assert await owner.reserve("job-2", 3)

    asyncio.run(reserve())


def test_a_folder_that_cannot_be_written_is_a_host_error_and_takes_no_gpu() -> None:
    async def reserve() -> None:
        owner = await owner_of(1)
        (owner._root / "ports").touch()
        with pytest.raises(HostError, match=f"{owner._root} on .*: File exists"):
            await owner.reserve("job-1", 1)
        (owner._root / "ports").unlink()
        assert await owner.reserve("job-2", 1)

    asyncio.run(reserve())


def test_a_process_that_went_on_to_another_job_is_not_killed(
    orphan: subprocess.Popen[bytes],
) -> None:
    found = processes.read(orphan.pid)
    assert found

    async def settle() -> None:
        owner = await owner_of(2)
        for job in ("old", "new"):
            await owner.reserve(job, 1)
            await owner.enrol(job, found.pid, found.started)
        await owner.settle("old", kill=True, collect=False)
        assert processes.alive(found.pid, found.started)
        await owner.settle("new", kill=True, collect=False)
        until(lambda: not processes.alive(found.pid, found.started), "it is killed")

    asyncio.run(settle())


def test_taking_waits_for_a_note_and_not_longer() -> None:
    async def talk() -> None:
        owner = await owner_of(1)
        await owner.reserve("job-1", 1)
        assert await owner.take(0.01) == []
        taking = asyncio.create_task(owner.take(600.0))
        await asyncio.sleep(0)
        await owner.note("job-1", 0, b"hello")
        await owner.note("unknown", 0, b"lost")
        assert await taking == [("job-1", 0, b"hello")]
        assert (await owner.settle("job-1", kill=False, collect=False)).notes == 1

    asyncio.run(talk())


def test_a_jobs_folder_comes_back_when_it_is_asked_for() -> None:
    async def settle() -> None:
        owner = await owner_of(1)
        await owner.reserve("job-1", 1)
        (await owner.folder("job-1") / "server.log").write_text("ready")
        assert (await owner.settle("job-1", kill=False, collect=True)).archive
        assert (await owner.settle("job-1", kill=False, collect=True)).archive is None

    asyncio.run(settle())
