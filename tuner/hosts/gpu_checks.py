"""Are the GPUs fit for a night? One function a question, over what was seen of them. Pure."""

from collections.abc import Sequence

from tuner.hosts.gpu_health import GpuState
from tuner.hosts.inspection import Inspected
from tuner.hosts.questions import Check, Needs, Question, State

FREE_GB = 1.0
"""What drivers and displays hold on a GPU that nobody uses."""
HOT_C = 70
"""An idle GPU that is hotter than this will be slowed down under load."""
MARGIN_C = 5
MEMORY_SHARE = 0.02


def used(seen: Inspected, needs: Needs) -> list[GpuState]:
    """The GPUs that the study would get, as far as they answer."""
    found = seen.gpus.found if needs.gpus is None else seen.gpus.found[: needs.gpus]
    return [gpu for gpu in found if not gpu.problem] if needs.real_gpus else []


def count(seen: Inspected, needs: Needs) -> list[Check]:
    """As many as hardware.gpus says, and each answers."""
    if not needs.real_gpus:
        return [Check(name="GPUs", state="ok", found="none needed: a rehearsal only declares them")]
    gpus, asked = seen.gpus, needs.gpus
    if gpus.problem:
        return [Check(name="GPUs", state="fail", found=gpus.problem, mend="nvidia-smi")]
    silent = [gpu for gpu in gpus.found[:asked] if gpu.problem]
    if silent:
        return [
            Check(
                name="GPUs",
                state="fail",
                found=f"GPU {gpu.index} does not answer: {gpu.problem}",
                mend=f"dmesg -T | grep -i xid; sudo nvidia-smi --gpu-reset -i {gpu.index}",
            )
            for gpu in silent
        ]
    return [_counted(len(gpus.found), asked, gpus.found)]


def _counted(have: int, asked: int | None, found: Sequence[GpuState]) -> Check:
    if not have:
        said = "none here"
        if asked is None:
            return Check(name="GPUs", state="ok", found=said)
        said += f": hardware.gpus: {asked} is handed out as declared, as for an engine on the CPU"
        return Check(
            name="GPUs", state="warn", found=said, mend="for an engine on GPUs: nvidia-smi"
        )
    model = found[0].model
    if asked is not None and have < asked:
        return Check(
            name="GPUs",
            state="fail",
            found=f"{have} x {model}, and hardware.gpus says {asked}",
            mend=f"set hardware.gpus to {have} in the study, or find the rest: nvidia-smi -L",
        )
    spare = f", {asked} of them used" if asked is not None and asked < have else ""
    return Check(name="GPUs", state="ok", found=f"{have} x {model}{spare}")


def free(seen: Inspected, needs: Needs) -> list[Check]:
    """Nobody else is on them: a stranger takes memory now, and time all night."""
    checks = []
    for gpu in used(seen, needs):
        if gpu.processes:
            who = ", ".join(f"process {p.pid} ({p.command})" for p in gpu.processes)
            pids = " ".join(str(p.pid) for p in gpu.processes)
            said = f"GPU {gpu.index} is used by {who}, {gpu.used_gb:.1f} GB in use"
            checks.append(Check(name="GPUs free", state="fail", found=said, mend=f"kill {pids}"))
        elif gpu.used_gb > FREE_GB:
            said = f"GPU {gpu.index}: {gpu.used_gb:.1f} GB are in use, by nobody that can be seen"
            mend = "sudo fuser -v /dev/nvidia*; a container's processes: docker ps"
            checks.append(Check(name="GPUs free", state="fail", found=said, mend=mend))
    if not checks and used(seen, needs):
        most = max(gpu.used_gb for gpu in used(seen, needs))
        said = f"no process on them, at most {most:.1f} GB in use"
        checks.append(Check(name="GPUs free", state="ok", found=said))
    return checks


def alike(seen: Inspected, needs: Needs) -> list[Check]:
    """Of one model and size, whole: a study compares launches on whichever are free."""
    gpus = used(seen, needs)
    if not gpus:
        return []
    models = sorted({gpu.model for gpu in gpus})
    sizes = [gpu.memory_gb for gpu in gpus]
    if len(models) > 1 or max(sizes) - min(sizes) > MEMORY_SHARE * max(sizes):
        each = ", ".join(f"{gpu.index}: {gpu.model} {gpu.memory_gb:.0f} GB" for gpu in gpus)
        mend = "make the like ones visible alone: CUDA_VISIBLE_DEVICES, or hardware.gpus"
        return [Check(name="GPUs alike", state="fail", found=f"they differ ({each})", mend=mend)]
    cut = [str(gpu.index) for gpu in gpus if gpu.mig]
    if cut:
        said = f"MIG cuts GPU {', '.join(cut)} into parts, and whole GPUs are handed out"
        mend = f"sudo nvidia-smi -i {','.join(cut)} -mig 0"
        return [Check(name="GPUs alike", state="fail", found=said, mend=mend)]
    ecc = {gpu.ecc for gpu in gpus}
    if len(ecc) > 1:
        on = ", ".join(str(gpu.index) for gpu in gpus if gpu.ecc)
        said = f"ECC is on for GPU {on} and off for the others"
        return [Check(name="GPUs alike", state="warn", found=said, mend="sudo nvidia-smi -e 1")]
    said = f"{len(gpus)} x {models[0]}, {sizes[0]:.0f} GB"
    return [Check(name="GPUs alike", state="ok", found=said)]


def temperature(seen: Inspected, needs: Needs) -> list[Check]:
    """Cool while idle, and not slowed down now."""
    gpus = used(seen, needs)
    known = [gpu for gpu in gpus if gpu.temperature_c is not None]
    checks = [
        Check(
            name="GPU heat",
            state="fail",
            found=f"GPU {gpu.index} is slowed down: {', '.join(gpu.throttled)}",
            mend=f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {gpu.index}",
        )
        for gpu in gpus
        if gpu.throttled
    ]
    for gpu in known:
        degrees = gpu.temperature_c or 0
        limit = (gpu.slowdown_c or 1000) - MARGIN_C
        if degrees > min(limit, HOT_C):
            state: State = "fail" if degrees > limit else "warn"
            said = f"GPU {gpu.index} is at {degrees} C without load of ours"
            mend = "look for work on it (nvidia-smi), then at fans and airflow"
            checks.append(Check(name="GPU heat", state=state, found=said, mend=mend))
    if checks or not known:
        return checks or ([_silent("GPU heat")] if gpus else [])
    hottest = max(gpu.temperature_c or 0 for gpu in known)
    return [Check(name="GPU heat", state="ok", found=f"at most {hottest} C, none slowed down")]


def power(seen: Inspected, needs: Needs) -> list[Check]:
    """The usual power limit, the same on all: a cap leaves no trace in a log, only in numbers."""
    gpus = used(seen, needs)
    known = [gpu for gpu in gpus if gpu.power_limit_w is not None]
    checks = [
        Check(
            name="GPU power",
            state="warn",
            found=f"GPU {gpu.index} may draw {gpu.power_limit_w:.0f} W, "
            f"{gpu.power_default_w:.0f} W are usual",
            mend=f"sudo nvidia-smi -i {gpu.index} -pl {gpu.power_default_w:.0f}",
        )
        for gpu in known
        if gpu.power_default_w is not None and gpu.power_limit_w != gpu.power_default_w
    ]
    if checks or not known:
        return checks or ([_silent("GPU power")] if gpus else [])
    limits = sorted({gpu.power_limit_w or 0 for gpu in known})
    if len(limits) > 1:
        said = f"limits differ: {', '.join(f'{limit:.0f} W' for limit in limits)}"
        mend = f"sudo nvidia-smi -pl {limits[-1]:.0f}"
        return [Check(name="GPU power", state="warn", found=said, mend=mend)]
    return [Check(name="GPU power", state="ok", found=f"{limits[0]:.0f} W each, as usual")]


def clocks(seen: Inspected, needs: Needs) -> list[Check]:
    """Nobody holds the clocks down."""
    gpus = used(seen, needs)
    known = [gpu for gpu in gpus if gpu.clock_mhz and gpu.clock_default_mhz]
    checks = [
        Check(
            name="GPU clocks",
            state="warn",
            found=f"GPU {gpu.index} is set to {gpu.clock_mhz} MHz, {gpu.clock_default_mhz} MHz "
            "are usual",
            mend=f"sudo nvidia-smi -i {gpu.index} -rac; sudo nvidia-smi -i {gpu.index} -rgc",
        )
        for gpu in known
        if gpu.clock_mhz != gpu.clock_default_mhz
    ]
    if checks or not gpus:
        return checks
    if not known:
        return [_silent("GPU clocks")]
    return [Check(name="GPU clocks", state="ok", found=f"{known[0].clock_mhz} MHz, as usual")]


def memory_errors(seen: Inspected, needs: Needs) -> list[Check]:
    """No memory error that could not be corrected, no row that waits to be replaced."""
    gpus = used(seen, needs)
    checks = []
    for gpu in gpus:
        reset = f"sudo nvidia-smi --gpu-reset -i {gpu.index}"
        if gpu.ecc_errors:
            said = f"GPU {gpu.index}: {gpu.ecc_errors} memory errors could not be corrected"
            checks.append(Check(name="GPU memory", state="fail", found=said, mend=reset))
        elif gpu.rows_to_remap:
            said = f"GPU {gpu.index}: rows of its memory wait to be replaced"
            checks.append(Check(name="GPU memory", state="fail", found=said, mend=reset))
    if checks or not gpus:
        return checks
    if all(gpu.ecc_errors is None for gpu in gpus):
        return [_silent("GPU memory")]
    return [Check(name="GPU memory", state="ok", found="no error that could not be corrected")]


def driver(seen: Inspected, needs: Needs) -> list[Check]:
    """New enough for the engine: within one major version of CUDA every driver will do."""
    cuda = seen.gpus.cuda
    if not used(seen, needs):
        return []
    said = f"driver {seen.gpus.driver}"
    if cuda is None:
        return [_silent("GPU driver")]
    said += f", CUDA {cuda[0]}.{cuda[1]}"
    if needs.cuda is None:
        return [Check(name="GPU driver", state="ok", found=said)]
    built = f"{needs.cuda[0]}.{needs.cuda[1]}"
    if cuda[0] < needs.cuda[0]:
        said += f", and the engine was built for CUDA {built}"
        mend = f"install a driver for CUDA {needs.cuda[0]}, or an engine built for {cuda[0]}"
        return [Check(name="GPU driver", state="fail", found=said, mend=mend)]
    return [Check(name="GPU driver", state="ok", found=f"{said}; the engine's is {built}")]


def _silent(name: str) -> Check:
    return Check(name=name, state="unknown", found="the driver does not say")


GPU_QUESTIONS: tuple[Question, ...] = (
    count,
    free,
    alike,
    temperature,
    power,
    clocks,
    memory_errors,
    driver,
)
