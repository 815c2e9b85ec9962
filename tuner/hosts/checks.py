"""Is this machine fit for a night? One function a question, over one look at it. Pure."""

from collections.abc import Sequence

from tuner.hosts.gpu_checks import GPU_QUESTIONS
from tuner.hosts.inspection import CpuUser, Disk, Inspected
from tuner.hosts.processes import SHARED_MEMORY
from tuner.hosts.questions import Check, Needs, Question, State
from tuner.hosts.slots import PORTS_A_GPU, port_blocks

_SHM = SHARED_MEMORY.rstrip("/")
SPARE_FILES = 256
"""What server and client open besides their connections."""
USUAL_CONCURRENCY = 1024
SHM_LEAST_GB = 0.25
SHM_GOOD_GB = 1.0
"""For each GPU of a host with several: NCCL and the engines' queues live there."""
DISK_LEAST_GB = 1.0
DISK_GOOD_GB = 10.0
FILES_LEAST = 1000
MEMORY_LEAST_GB = 2.0
MEMORY_GOOD_SHARE = 0.1
SWAPPED_PAGES = 100
SWAP_GOOD_GB = 0.5
BUSY_SHARE = 0.1
CROWDED_SHARE = 0.5
FIRST_YEAR = 2026


def open_files(seen: Inspected, needs: Needs) -> list[Check]:
    """Enough descriptors for every stream, on both sides; only the soft limit can be raised."""
    streams = needs.concurrency or USUAL_CONCURRENCY
    need = streams + SPARE_FILES
    soft, hard = seen.open_files_soft, seen.open_files_hard
    for_what = f"{streams} streams need {need}"
    if hard is not None and hard < need:
        return [
            Check(
                name="open files",
                state="fail",
                found=f"at most {hard} may be open, {for_what}",
                mend=f"raise the hard limit: nofile in /etc/security/limits.conf, or docker run "
                f"--ulimit nofile={max(65536, 2 * need)}",
            )
        ]
    if soft is not None and soft < need:
        said = f"{soft} may be open, {for_what}"
        return [Check(name="open files", state="warn", found=said, mend=f"ulimit -n {2 * need}")]
    said = f"{'any number' if soft is None else soft} may be open, {for_what}"
    return [Check(name="open files", state="ok", found=said)]


def shared_memory(seen: Inspected, needs: Needs) -> list[Check]:
    """Room in /dev/shm: what NCCL cannot put there ends the first launch with several GPUs."""
    gpus = needs.gpus if needs.real_gpus and needs.gpus else 1
    least, good = gpus * SHM_LEAST_GB, gpus * SHM_GOOD_GB
    mend = (
        f"sudo mount -o remount,size={max(16, round(good) * 2)}G /dev/shm, or docker run --ipc=host"
    )
    if seen.shm is None or seen.shm.problem:
        said = f"there is no {_SHM}" if seen.shm is None else f"{_SHM}: {seen.shm.problem}"
        return [Check(name=_SHM, state="fail", found=said, mend=mend)]
    free, total = seen.shm.free_gb, seen.shm.total_gb
    said = f"{_gb(free)} of {_gb(total)} are free"
    if free < good:
        state: State = "fail" if free < least and gpus > 1 else "warn"
        many = f"{gpus} GPUs want" if gpus > 1 else "a server wants"
        said = f"{said}, {many} {_gb(good)}"
        return [Check(name=_SHM, state=state, found=said, mend=mend)]
    return [Check(name=_SHM, state="ok", found=said)]


def disks(seen: Inspected, needs: Needs) -> list[Check]:
    """Room for records and logs, and for what servers and Ray put aside."""
    places = [("disk of the study", seen.study), ("disk of TMPDIR", seen.tmp)]
    return [_room(name, disk) for name, disk in places if disk is not None]


def _room(name: str, disk: Disk) -> Check:
    if disk.problem:
        mend = "mkdir -p it, or point TMPDIR to a folder of your own"
        return Check(name=name, state="fail", found=f"{disk.path}: {disk.problem}", mend=mend)
    if not disk.writable:
        mend = f"chown or chmod {disk.path}, or use another folder"
        found = f"{disk.path} cannot be written to"
        return Check(name=name, state="fail", found=found, mend=mend)
    mend = f"free some: du -xh {disk.path} | sort -h | tail"
    if disk.files_left is not None and disk.files_left < FILES_LEAST:
        found = f"{disk.path}: room for {disk.files_left} more files only"
        return Check(name=name, state="fail", found=found, mend=f"df -i {disk.path}")
    found = f"{disk.path}: {_gb(disk.free_gb)} of {_gb(disk.total_gb)} are free"
    if disk.free_gb < DISK_GOOD_GB:
        state: State = "fail" if disk.free_gb < DISK_LEAST_GB else "warn"
        return Check(name=name, state=state, found=found, mend=mend)
    return Check(name=name, state="ok", found=found)


def ports(seen: Inspected, needs: Needs) -> list[Check]:
    """A block of free ports for each server that can run at once."""
    taken = set(seen.listening)
    blocks = port_blocks(seen.ephemeral, 0, seen.reserved)
    free = sum(1 for block in blocks if taken.isdisjoint(block))
    wanted = needs.gpus or 1
    said = f"{free} blocks of {PORTS_A_GPU} are free, up to {wanted} are used at once"
    if free >= wanted:
        return [Check(name="ports", state="ok", found=said)]
    state: State = "warn" if free else "fail"
    mend = "ss -ltnp shows who listens; sysctl net.ipv4.ip_local_reserved_ports what is kept"
    return [Check(name="ports", state=state, found=said, mend=mend)]


def memory(seen: Inspected, needs: Needs) -> list[Check]:
    """Room to load a model and to keep the load generator's records."""
    said = f"{_gb(seen.available_gb)} of {_gb(seen.memory_gb)} are available"
    mend = "ps aux --sort=-rss | head shows who has it"
    if seen.available_gb < MEMORY_LEAST_GB:
        return [Check(name="memory", state="fail", found=said, mend=mend)]
    if seen.available_gb < MEMORY_GOOD_SHARE * seen.memory_gb:
        return [Check(name="memory", state="warn", found=said, mend=mend)]
    return [Check(name="memory", state="ok", found=said)]


def swap(seen: Inspected, needs: Needs) -> list[Check]:
    """Nothing is swapped: a server's pages that come back from disk stop it for milliseconds."""
    mend = "sudo swapoff -a && sudo swapon -a, once memory allows"
    if seen.swapped_pages > SWAPPED_PAGES:
        said = (
            f"the machine swaps: {seen.swapped_pages} pages went in or out while it was looked at"
        )
        return [Check(name="swap", state="fail", found=said, mend="free memory, then " + mend)]
    if seen.swap_used_gb > SWAP_GOOD_GB:
        said = f"{_gb(seen.swap_used_gb)} of {_gb(seen.swap_gb)} are in use"
        return [Check(name="swap", state="warn", found=said, mend=mend)]
    said = "none" if not seen.swap_gb else f"{_gb(seen.swap_used_gb)} of {_gb(seen.swap_gb)} in use"
    return [Check(name="swap", state="ok", found=said)]


def other_load(seen: Inspected, needs: Needs) -> list[Check]:
    """The cores are free: servers and the load generator's clock need them."""
    share = seen.busy_cores / seen.cores
    said = (
        f"{seen.busy_cores:.1f} of {seen.cores} cores are busy, load average {seen.load_1min:.1f}"
    )
    if share <= BUSY_SHARE:
        return [Check(name="other load", state="ok", found=said)]
    if seen.cpu_users:
        said = f"{said}: {', '.join(_user(user) for user in seen.cpu_users[:3])}"
    mend = _after(seen.cpu_users[:3])
    state: State = "fail" if share > CROWDED_SHARE and needs.real_gpus else "warn"
    return [Check(name="other load", state=state, found=said, mend=mend)]


def _user(user: CpuUser) -> str:
    whose = "a tuner's own, " if user.ours else ""
    owner = f" of {user.user}" if user.user else ""
    return f"process {user.pid}{owner} ({whose}{user.command}) {user.cores:.1f}"


def _after(users: Sequence[CpuUser]) -> str:
    """What to do about load: never to kill what nobody here knows the use of."""
    if not users:
        return "top shows who; it may be a neighbour"
    if all(user.ours for user in users):
        return "a tuner is running: wait for it to end"
    pids = ",".join(str(user.pid) for user in users if not user.ours)
    return f"ps -fp {pids} shows what it is; wait for it to end"


def quota(seen: Inspected, needs: Needs) -> list[Check]:
    """The container may use the cores that it sees."""
    if seen.quota_cores is None or seen.quota_cores >= seen.cores:
        return []
    said = f"the container may use {seen.quota_cores:g} of the {seen.cores} cores that it sees"
    mend = "docker run without --cpus, or with --cpuset-cpus"
    return [Check(name="cores", state="warn", found=said, mend=mend)]


def clock(seen: Inspected, needs: Needs) -> list[Check]:
    """The date is right, and something keeps it right: a deadline and the records go by it."""
    local = seen.now.astimezone()
    said = f"{local:%Y-%m-%d %H:%M:%S %Z}"
    mend = "sudo timedatectl set-ntp true"
    if seen.now.year < FIRST_YEAR:
        found = f"{said} cannot be: this program is younger"
        return [Check(name="clock", state="fail", found=found, mend=mend)]
    if seen.synchronised is None:
        found = f"{said}; the kernel does not say whether it is kept right"
        return [Check(name="clock", state="unknown", found=found, mend="timedatectl")]
    if not seen.synchronised:
        found = f"{said}; nothing keeps it right that the kernel knows of"
        return [Check(name="clock", state="warn", found=found, mend=mend)]
    return [Check(name="clock", state="ok", found=f"{said}, kept right")]


def leftovers(seen: Inspected, needs: Needs) -> list[Check]:
    """Nothing is left of runs whose process died."""
    if seen.unswept:
        found = "; ".join(seen.unswept)
        mend = "dmesg -T shows what they hang in; the last resort is a reboot"
        return [Check(name="leftovers", state="fail", found=found, mend=mend)]
    found = f"removed: {'; '.join(seen.swept)}" if seen.swept else "none of earlier runs"
    return [Check(name="leftovers", state="ok", found=found)]


def _gb(gigabytes: float) -> str:
    return f"{gigabytes:.0f} GB" if gigabytes >= 10 else f"{gigabytes:.2g} GB"


QUESTIONS: tuple[Question, ...] = (
    *GPU_QUESTIONS,
    open_files,
    shared_memory,
    disks,
    ports,
    memory,
    swap,
    other_load,
    quota,
    clock,
    leftovers,
)


def judged(seen: Inspected, needs: Needs) -> list[Check]:
    """Every question's answer, in order."""
    return [check for question in QUESTIONS for check in question(seen, needs)]
