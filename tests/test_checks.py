"""Each fault of a machine is found, said with its numbers, and comes with what mends it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tuner.hosts.checks import QUESTIONS, judged
from tuner.hosts.gpu_health import GpuProcess, Gpus, GpuState
from tuner.hosts.inspection import CpuUser, Disk, Inspected
from tuner.hosts.questions import Check, Needs

NEEDS = Needs(gpus=2, concurrency=1024, cuda=(12, 8))
DISK = Disk(path="/data", free_gb=900.0, total_gb=1000.0, files_left=10_000_000, writable=True)
SHM = DISK.model_copy(update={"path": "/dev/shm"})
DATE = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)


def gpu(index: int = 0, **other: Any) -> GpuState:
    values: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "model": "NVIDIA H200",
        "memory_gb": 150.7,
        "used_gb": 0.6,
        "temperature_c": 31,
        "slowdown_c": 89,
        "power_limit_w": 700.0,
        "power_default_w": 700.0,
        "clock_mhz": 1980,
        "clock_default_mhz": 1980,
        "ecc": True,
        "ecc_errors": 0,
        "rows_to_remap": False,
        "mig": False,
    }
    return GpuState(**values | other)


def gpus(*found: GpuState, **other: Any) -> Gpus:
    values: dict[str, Any] = {"driver": "570.86", "cuda": (12, 8), "found": list(found)}
    return Gpus(**values | other)


def host(**other: Any) -> Inspected:
    values: dict[str, Any] = {
        "gpus": gpus(gpu(0), gpu(1)),
        "open_files_soft": 1_048_576,
        "open_files_hard": 1_048_576,
        "shm": SHM,
        "tmp": DISK,
        "study": DISK,
        "listening": [22],
        "ephemeral": (32768, 60999),
        "reserved": [],
        "memory_gb": 2000.0,
        "available_gb": 1900.0,
        "swap_gb": 8.0,
        "swap_used_gb": 0.0,
        "swapped_pages": 0,
        "cores": 128,
        "quota_cores": None,
        "load_1min": 0.5,
        "busy_cores": 0.4,
        "cpu_users": [],
        "now": DATE,
        "synchronised": True,
        "swept": [],
        "unswept": [],
    }
    return Inspected(**values | other)


def faults(seen: Inspected, needs: Needs = NEEDS) -> list[tuple[str, str, str, str]]:
    return [
        (check.state, check.name, check.found, check.mend)
        for check in judged(seen, needs)
        if check.state != "ok"
    ]


def test_a_fit_machine_passes_every_check():
    checks = judged(host(), NEEDS)
    assert {check.state for check in checks} == {"ok"}
    assert [check.name for check in checks] == [
        *("GPUs", "GPUs free", "GPUs alike", "GPU heat", "GPU power", "GPU clocks", "GPU memory"),
        *("GPU driver", "open files", "/dev/shm", "disk of the study", "disk of TMPDIR", "ports"),
        *("memory", "swap", "other load", "clock", "leftovers"),
    ]
    found = {check.name: check.found for check in checks}
    assert found["GPUs"] == "2 x NVIDIA H200"
    assert found["GPUs free"] == "no process on them, at most 0.6 GB in use"
    assert found["GPU driver"] == "driver 570.86, CUDA 12.8; the engine's is 12.8"


TWO_GB = DISK.model_copy(update={"free_gb": 2.0})
RESET = "sudo nvidia-smi --gpu-reset -i 1"

INJECTED: dict[str, tuple[Inspected, tuple[str, str, str, str]]] = {
    "the driver does not answer": (
        host(gpus=Gpus(problem="NVML says: Driver/library version mismatch")),
        ("fail", "GPUs", "NVML says: Driver/library version mismatch", "nvidia-smi"),
    ),
    "too few": (
        host(gpus=gpus(gpu(0))),
        (
            *("fail", "GPUs", "1 x NVIDIA H200, and hardware.gpus says 2"),
            "set hardware.gpus to 1 in the study, or find the rest: nvidia-smi -L",
        ),
    ),
    "none": (
        host(gpus=Gpus()),
        (
            *("warn", "GPUs"),
            "none here: hardware.gpus: 2 is handed out as declared, as for an engine on the CPU",
            "for an engine on GPUs: nvidia-smi",
        ),
    ),
    "one is lost": (
        host(gpus=gpus(gpu(0), gpu(1, problem="NVML says: GPU is lost"))),
        (
            *("fail", "GPUs", "GPU 1 does not answer: NVML says: GPU is lost"),
            f"dmesg -T | grep -i xid; {RESET}",
        ),
    ),
    "a stranger on it": (
        host(
            gpus=gpus(
                gpu(0),
                gpu(
                    1,
                    used_gb=70.4,
                    processes=[GpuProcess(pid=77, command="python train.py", memory_gb=70.0)],
                ),
            )
        ),
        (
            *("fail", "GPUs free"),
            "GPU 1 is used by process 77 (python train.py), 70.4 GB in use",
            "kill 77",
        ),
    ),
    "memory that nobody owns": (
        host(gpus=gpus(gpu(0, used_gb=96.0), gpu(1))),
        (
            *("fail", "GPUs free", "GPU 0: 96.0 GB are in use, by nobody that can be seen"),
            "sudo fuser -v /dev/nvidia*; a container's processes: docker ps",
        ),
    ),
    "other models": (
        host(gpus=gpus(gpu(0), gpu(1, model="NVIDIA H100", memory_gb=80))),
        (
            *("fail", "GPUs alike"),
            "they differ (0: NVIDIA H200 151 GB, 1: NVIDIA H100 80 GB)",
            "make the like ones visible alone: CUDA_VISIBLE_DEVICES, or hardware.gpus",
        ),
    ),
    "cut into parts": (
        host(gpus=gpus(gpu(0), gpu(1, mig=True))),
        (
            *("fail", "GPUs alike"),
            "MIG cuts GPU 1 into parts, and whole GPUs are handed out",
            "sudo nvidia-smi -i 1 -mig 0",
        ),
    ),
    "ECC on one": (
        host(gpus=gpus(gpu(0), gpu(1, ecc=False))),
        ("warn", "GPUs alike", "ECC is on for GPU 0 and off for the others",
         "sudo nvidia-smi -e 1"),
    ),
    "hot": (
        host(gpus=gpus(gpu(0), gpu(1, temperature_c=78))),
        (
            *("warn", "GPU heat", "GPU 1 is at 78 C without load of ours"),
            "look for work on it (nvidia-smi), then at fans and airflow",
        ),
    ),
    "about to be slowed down": (
        host(gpus=gpus(gpu(0), gpu(1, temperature_c=86))),
        (
            *("fail", "GPU heat", "GPU 1 is at 86 C without load of ours"),
            "look for work on it (nvidia-smi), then at fans and airflow",
        ),
    ),
    "slowed down": (
        host(gpus=gpus(gpu(0), gpu(1, throttled=["its power supply brakes it"]))),
        (
            *("fail", "GPU heat", "GPU 1 is slowed down: its power supply brakes it"),
            "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i 1",
        ),
    ),
    "power cap": (
        host(gpus=gpus(gpu(0), gpu(1, power_limit_w=500.0))),
        (
            *("warn", "GPU power", "GPU 1 may draw 500 W, 700 W are usual"),
            "sudo nvidia-smi -i 1 -pl 700",
        ),
    ),
    "unlike power limits": (
        host(
            gpus=gpus(
                gpu(0, power_default_w=None), gpu(1, power_limit_w=500.0, power_default_w=None)
            )
        ),
        ("warn", "GPU power", "limits differ: 500 W, 700 W", "sudo nvidia-smi -pl 700"),
    ),
    "clocks held down": (
        host(gpus=gpus(gpu(0), gpu(1, clock_mhz=1200))),
        (
            *("warn", "GPU clocks", "GPU 1 is set to 1200 MHz, 1980 MHz are usual"),
            "sudo nvidia-smi -i 1 -rac; sudo nvidia-smi -i 1 -rgc",
        ),
    ),
    "memory errors": (
        host(gpus=gpus(gpu(0), gpu(1, ecc_errors=3))),
        ("fail", "GPU memory", "GPU 1: 3 memory errors could not be corrected", RESET),
    ),
    "rows to replace": (
        host(gpus=gpus(gpu(0), gpu(1, rows_to_remap=True))),
        ("fail", "GPU memory", "GPU 1: rows of its memory wait to be replaced", RESET),
    ),
    "an old driver": (
        host(gpus=gpus(gpu(0), gpu(1), driver="525.60", cuda=(11, 8))),
        (
            *("fail", "GPU driver"),
            "driver 525.60, CUDA 11.8, and the engine was built for CUDA 12.8",
            "install a driver for CUDA 12, or an engine built for 11",
        ),
    ),
    "few open files": (
        host(open_files_soft=1024, open_files_hard=1024),
        (
            *("fail", "open files", "at most 1024 may be open, 1024 streams need 1280"),
            "raise the hard limit: nofile in /etc/security/limits.conf, or docker run "
            "--ulimit nofile=65536",
        ),
    ),
    "few open files for now": (
        host(open_files_soft=1024, open_files_hard=None),
        (
            *("warn", "open files", "1024 may be open, 1024 streams need 1280"),
            "ulimit -n 2560",
        ),
    ),
    "docker's shared memory": (
        host(shm=SHM.model_copy(update={"free_gb": 0.064, "total_gb": 0.064})),
        (
            *("fail", "/dev/shm", "0.064 GB of 0.064 GB are free, 2 GPUs want 2 GB"),
            "sudo mount -o remount,size=16G /dev/shm, or docker run --ipc=host",
        ),
    ),
    "little shared memory": (
        host(shm=SHM.model_copy(update={"free_gb": 1.0, "total_gb": 64.0})),
        (
            *("warn", "/dev/shm", "1 GB of 64 GB are free, 2 GPUs want 2 GB"),
            "sudo mount -o remount,size=16G /dev/shm, or docker run --ipc=host",
        ),
    ),
    "no shared memory": (
        host(shm=None),
        (
            *("fail", "/dev/shm", "there is no /dev/shm"),
            "sudo mount -o remount,size=16G /dev/shm, or docker run --ipc=host",
        ),
    ),
    "little disk": (
        host(study=TWO_GB),
        (
            *("warn", "disk of the study", "/data: 2 GB of 1000 GB are free"),
            "free some: du -xh /data | sort -h | tail",
        ),
    ),
    "no disk": (
        host(tmp=DISK.model_copy(update={"free_gb": 0.2})),
        (
            *("fail", "disk of TMPDIR", "/data: 0.2 GB of 1000 GB are free"),
            "free some: du -xh /data | sort -h | tail",
        ),
    ),
    "no room for files": (
        host(tmp=DISK.model_copy(update={"files_left": 12})),
        ("fail", "disk of TMPDIR", "/data: room for 12 more files only", "df -i /data"),
    ),
    "a folder that cannot be written": (
        host(study=DISK.model_copy(update={"writable": False})),
        (
            *("fail", "disk of the study", "/data cannot be written to"),
            "chown or chmod /data, or use another folder",
        ),
    ),
    "a TMPDIR that is not there": (
        host(tmp=DISK.model_copy(update={"problem": "it does not exist"})),
        (
            *("fail", "disk of TMPDIR", "/data: it does not exist"),
            "mkdir -p it, or point TMPDIR to a folder of your own",
        ),
    ),
    "no ports": (
        host(listening=list(range(20000, 65536, 16))),
        (
            *("fail", "ports", "0 blocks of 16 are free, up to 2 are used at once"),
            "ss -ltnp shows who listens; sysctl net.ipv4.ip_local_reserved_ports what is kept",
        ),
    ),
    "little memory": (
        host(available_gb=100.0),
        (
            *("warn", "memory", "100 GB of 2000 GB are available"),
            "ps aux --sort=-rss | head shows who has it",
        ),
    ),
    "no memory": (
        host(available_gb=1.5),
        (
            *("fail", "memory", "1.5 GB of 2000 GB are available"),
            "ps aux --sort=-rss | head shows who has it",
        ),
    ),
    "swap in use": (
        host(swap_used_gb=3.0),
        (
            *("warn", "swap", "3 GB of 8 GB are in use"),
            "sudo swapoff -a && sudo swapon -a, once memory allows",
        ),
    ),
    "swapping": (
        host(swap_used_gb=3.0, swapped_pages=4000),
        (
            *("fail", "swap"),
            "the machine swaps: 4000 pages went in or out while it was looked at",
            "free memory, then sudo swapoff -a && sudo swapon -a, once memory allows",
        ),
    ),
    "other work": (
        host(
            busy_cores=32.0,
            load_1min=31.5,
            cpu_users=[CpuUser(pid=5, command="make -j32", cores=31.6)],
        ),
        (
            *("warn", "other load"),
            "32.0 of 128 cores are busy, load average 31.5: process 5 (make -j32) 31.6",
            "ps -fp 5 shows what it is; wait for it to end",
        ),
    ),
    "a run of our own": (
        host(
            busy_cores=32.0,
            load_1min=31.5,
            cpu_users=[CpuUser(pid=7, command="raylet", cores=30.0, user="ann", ours=True)],
        ),
        (
            *("warn", "other load"),
            "32.0 of 128 cores are busy, load average 31.5: process 7 of ann (a tuner's own,"
            " raylet) 30.0",
            "a tuner is running: wait for it to end",
        ),
    ),
    "a run of our own and somebody": (
        host(
            busy_cores=32.0,
            load_1min=31.5,
            cpu_users=[
                CpuUser(pid=7, command="raylet", cores=20.0, ours=True),
                CpuUser(pid=8, command="make", cores=9.0, user="bob"),
            ],
        ),
        (
            *("warn", "other load"),
            "32.0 of 128 cores are busy, load average 31.5: process 7 (a tuner's own, raylet) 20.0,"
            " process 8 of bob (make) 9.0",
            "ps -fp 8 shows what it is; wait for it to end",
        ),
    ),
    "a crowd that cannot be seen": (
        host(busy_cores=100.0, load_1min=99.0),
        (
            *("fail", "other load", "100.0 of 128 cores are busy, load average 99.0"),
            "top shows who; it may be a neighbour",
        ),
    ),
    "a quota": (
        host(quota_cores=4.0),
        (
            *("warn", "cores", "the container may use 4 of the 128 cores that it sees"),
            "docker run without --cpus, or with --cpuset-cpus",
        ),
    ),
    "leftovers that stay": (
        host(unswept=["server trial-3: 2 processes live on (they hang inside a driver)"]),
        (
            *("fail", "leftovers"),
            "server trial-3: 2 processes live on (they hang inside a driver)",
            "dmesg -T shows what they hang in; the last resort is a reboot",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INJECTED)
def test_each_fault_is_found_alone_and_comes_with_what_mends_it(name):
    seen, expected = INJECTED[name]
    assert faults(seen) == [expected]


@pytest.mark.parametrize(
    ("now", "synchronised", "state", "said"),
    [
        (datetime(1970, 1, 1, 12, tzinfo=UTC), True, "fail", " cannot be: this program is younger"),
        (DATE, None, "unknown", "; the kernel does not say whether it is kept right"),
        (DATE, False, "warn", "; nothing keeps it right that the kernel knows of"),
    ],
)
def test_a_clock_that_is_wrong_or_that_nothing_keeps(now, synchronised, state, said):
    ((found, name, text, mend),) = faults(host(now=now, synchronised=synchronised))
    assert (found, name) == (state, "clock")
    assert text.endswith(said)
    assert text.startswith(f"{now.astimezone():%Y-%m-%d %H:%M:%S}")
    assert mend.split()[-1] in ("timedatectl", "true")


def test_fewer_ports_than_servers_is_a_warning():
    seen = host(listening=list(range(20016, 65536, 16)))
    assert faults(seen, Needs(gpus=1)) == []
    ((state, name, found, _),) = faults(seen)
    assert (state, name) == ("warn", "ports")
    assert found == "1 blocks of 16 are free, up to 2 are used at once"


def test_a_machine_without_swap_and_one_that_does_not_use_it():
    said = {
        swap_gb: next(c for c in judged(host(swap_gb=swap_gb), NEEDS) if c.name == "swap").found
        for swap_gb in (0.0, 8.0)
    }
    assert said == {0.0: "none", 8.0: "0 GB of 8 GB in use"}


def test_what_was_removed_is_said():
    seen = host(swept=["server trial-3: 2 processes", "Ray: 1 process (pid 7), 1 folder (/r/s)"])
    assert judged(seen, NEEDS)[-1] == Check(
        name="leftovers",
        state="ok",
        found="removed: server trial-3: 2 processes; Ray: 1 process (pid 7), 1 folder (/r/s)",
    )


def test_a_driver_that_says_little_leaves_questions_open():
    silent = [
        GpuState(index=n, uuid=f"GPU-{n}", model="Tesla T4", memory_gb=16.0, used_gb=0.1)
        for n in range(2)
    ]
    seen = host(gpus=Gpus(driver="570.86", found=silent))
    assert [(state, name) for state, name, _, _ in faults(seen)] == [
        ("unknown", name)
        for name in ("GPU heat", "GPU power", "GPU clocks", "GPU memory", "GPU driver")
    ]


def test_gpus_that_the_study_does_not_use_are_not_judged():
    busy = gpu(2, used_gb=90.0, temperature_c=86, model="NVIDIA H100")
    seen = host(gpus=gpus(gpu(0), gpu(1), busy))
    assert faults(seen) == []
    assert judged(seen, NEEDS)[0].found == "3 x NVIDIA H200, 2 of them used"
    assert len(faults(seen, Needs())) == 3


def test_a_rehearsal_needs_no_gpu_and_suffers_a_crowd():
    seen = host(gpus=Gpus(problem="NVML says: Unknown Error"), busy_cores=100.0)
    needs = Needs(gpus=8, real_gpus=False, concurrency=64)
    assert [(state, name) for state, name, _, _ in faults(seen, needs)] == [("warn", "other load")]
    assert not [check for check in judged(seen, needs) if check.name.startswith("GPU ")]


def test_every_fault_that_can_be_mended_says_how():
    for seen, _ in INJECTED.values():
        assert all(mend for _, _, _, mend in faults(seen))


def test_no_question_is_asked_twice():
    assert len(set(QUESTIONS)) == len(QUESTIONS)
