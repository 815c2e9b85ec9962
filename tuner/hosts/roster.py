"""The hosts of a run and the agent on each: found, lost, and found again."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import HostError, TunerError
from tuner.hosts.agent import Agent
from tuner.hosts.executor import HostInfo
from tuner.hosts.ray_session import HostLost, JobBug, fetch, in_short
from tuner.hosts.server import default_run_root

import ray  # isort: skip  (after ray_session, which sets what Ray reads when imported)
from ray.exceptions import RayError  # isort: skip
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # isort: skip

_START_S = 120.0
_REVIVE_S = 60.0
_LOOK_AGAIN_S = 5.0
_AWAY_LIMIT_S = 600.0
_CALLS_AT_ONCE = 1000


@dataclass(slots=True)
class Host:
    """One host and its agent; `asked` is the question for news that is under way."""

    node: str
    agent: Any
    info: HostInfo
    local: bool
    quarantined: dict[str, str] = field(default_factory=dict)
    asked: Any = None
    asked_at_s: float = 0.0

    @property
    def healthy(self) -> int:
        """How many GPUs are not in quarantine, free or not."""
        return sum(gpu not in self.quarantined for gpu in self.info.gpus)

    def words(self) -> str:
        """How many GPUs are left, and why the others are not."""
        gone = [gpu for gpu in self.info.gpus if gpu in self.quarantined]
        reasons = "; ".join(f"{gpu} is in quarantine: {self.quarantined[gpu]}" for gpu in gone)
        return f"{self.healthy} ({reasons})" if reasons else str(self.healthy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lost:
    host: Host
    why: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """An agent on a node that may be a lost host's; `answer` is its description, to come."""

    node: str
    agent: Any
    answer: Any
    probe: Path
    since_s: float


class Roster:
    """The hosts that jobs may go to, in the order in which they were found."""

    def __init__(self, declared: int, *, use_gpus: bool) -> None:
        self.hosts: list[Host] = []
        self._options = {"declared": declared, "use_gpus": use_gpus}
        self._lost: list[_Lost] = []
        self._candidates: list[_Candidate] = []
        self._unfit: set[str] = set()
        self._looked_s = 0.0

    def start(self) -> None:
        """Find the hosts, or find them again after Ray was started afresh.

        A host without GPUs is none where another has some: a study's GPUs are real or declared.
        Raises HostError where one does not answer or has too few GPUs.
        """
        before, self.hosts = self.hosts, []
        quarantined = _quarantined(before)
        with _probe() as probe:
            agents = [(node, self._start_agent(node, quarantined)) for node in living_nodes()]
            found = [self._meet(node, agent, probe, _START_S) for node, agent in agents]
        for host in found:
            host.quarantined = dict(quarantined)
        self.hosts = fitting([host.info for host in before], found)
        for host in found:
            if host not in self.hosts:
                self._dismiss(host.node, host.agent)

    def revive(self, host: Host, why: str) -> None:
        """Put another agent in the place of one that is gone, or count the host as lost."""
        host.asked = None
        with suppress(RayError):
            ray.kill(host.agent)
        try:
            if host.node not in living_nodes():
                raise HostLost(why)
            with _probe() as probe:
                agent = self._start_agent(host.node, host.quarantined)
                again = self._meet(host.node, agent, probe, _REVIVE_S)
            if not _alike(again.info, host.info):
                raise HostLost(f"it came back as another machine: {again.info}")
        except (TunerError, JobBug) as error:
            self.hosts.remove(host)
            self._lost.append(_Lost(host=host, why=in_short(error), at_s=time.monotonic()))
        else:
            host.agent = again.agent

    def look(self) -> None:
        """Look for lost hosts, without waiting for them: they return when their agents answer."""
        if not self._lost:
            return
        for candidate in list(self._candidates):
            self._consider(candidate)
        if time.monotonic() - self._looked_s < _LOOK_AGAIN_S:
            return
        self._looked_s = time.monotonic()
        known = {host.node for host in self.hosts} | {each.node for each in self._candidates}
        for node in living_nodes():
            if node not in known | self._unfit:
                self._invite(node)

    def awaited(self) -> bool:
        """Whether a host was lost that may still come back."""
        return any(time.monotonic() - lost.at_s < _AWAY_LIMIT_S for lost in self._lost)

    def losses(self) -> str:
        """The lost hosts and why each is lost."""
        return "; ".join(f"{lost.host.info.name}: {lost.why}" for lost in self._lost)

    def close(self) -> None:
        """Forget the hosts that may still have come back."""
        for candidate in self._candidates:
            candidate.probe.unlink(missing_ok=True)
        self._candidates.clear()

    def _start_agent(self, node: str, quarantined: dict[str, str]) -> Any:
        actor: Any = ray.remote(Agent)
        return actor.options(
            num_cpus=0,
            max_restarts=0,
            max_concurrency=_CALLS_AT_ONCE,
            scheduling_strategy=on(node),
        ).remote(**self._options, quarantined=quarantined)

    def _meet(self, node: str, agent: Any, probe: Path, timeout_s: float) -> Host:
        try:
            answer = agent.describe.remote(probe)
            info, local = fetch(answer, timeout_s, f"the agent on node {node}")
        except (TunerError, JobBug):
            with suppress(RayError):
                ray.kill(agent)
            raise
        return Host(node=node, agent=agent, info=info, local=local)

    def _invite(self, node: str) -> None:
        probe = _new_probe()
        agent = self._start_agent(node, _quarantined([lost.host for lost in self._lost]))
        self._candidates.append(
            _Candidate(
                node=node,
                agent=agent,
                answer=agent.describe.remote(probe),
                probe=probe,
                since_s=time.monotonic(),
            )
        )

    def _consider(self, candidate: _Candidate) -> None:
        """Take it for a lost host that it is like; what is not like any is left alone for good."""
        late = time.monotonic() - candidate.since_s > _START_S
        ready, _ = ray.wait([candidate.answer], timeout=0, fetch_local=False)
        if not ready and not late:
            return
        self._candidates.remove(candidate)
        candidate.probe.unlink(missing_ok=True)
        try:
            info, local = fetch(candidate.answer, 1.0, f"the agent on node {candidate.node}")
            lost = next(each for each in self._lost if _alike(info, each.host.info))
        except HostLost:
            with suppress(RayError):
                ray.kill(candidate.agent)  # it is asked again
        except (TunerError, JobBug, StopIteration):
            self._dismiss(candidate.node, candidate.agent)
        else:
            self._lost.remove(lost)
            again = Host(node=candidate.node, agent=candidate.agent, info=info, local=local)
            again.quarantined = lost.host.quarantined
            self.hosts.append(again)

    def _dismiss(self, node: str, agent: Any) -> None:
        self._unfit.add(node)
        with suppress(RayError):
            ray.kill(agent)


def fitting(before: list[HostInfo], found: list[Host]) -> list[Host]:
    """Those with real GPUs where any has some, else all with declared ones.

    Raises HostError where there were real GPUs before and are none now.
    """
    real = [host for host in found if host.info.real_gpus]
    if not real and any(info.real_gpus for info in before):
        raise HostError(
            "the GPUs are gone: NVML finds none any more", hint="see what nvidia-smi says"
        )
    return real or found


def living_nodes() -> list[str]:
    """Ray's names for the hosts that it counts as alive."""
    known: Any = ray.nodes  # untyped
    return [node["NodeID"] for node in known() if node["Alive"]]


def on(node: str) -> NodeAffinitySchedulingStrategy:
    """On this node and no other."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


def _alike(one: HostInfo, other: HostInfo) -> bool:
    """Whether numbers from both may be compared; a container's name changes when it returns."""

    def kind(info: HostInfo) -> tuple[Any, ...]:
        return info.gpu_model, info.real_gpus, len(info.gpus), info.cpu_model, info.cores

    return kind(one) == kind(other)


def _quarantined(hosts: list[Host]) -> dict[str, str]:
    return {gpu: why for host in hosts for gpu, why in host.quarantined.items()}


def _new_probe() -> Path:
    path = default_run_root() / f"probe-{secrets.token_hex(8)}"
    path.touch()
    return path


@contextmanager
def _probe() -> Iterator[Path]:
    """A file that only a host with this machine's files can see."""
    path = _new_probe()
    try:
        yield path
    finally:
        path.unlink()
