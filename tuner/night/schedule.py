"""What to launch next. Pure: the records are the state, so a run continues after anything.

A night is: baseline launches for a noise floor, every stated hypothesis, the search, and at the
end the best launched afresh beside the baseline. More budget continues the search and tightens
what is still open.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.definitions.models import EFFORT_HOURS, Hypothesis, Objective
from tuner.definitions.space import Configuration, Space
from tuner.night.relaunching import given_up, made, void_in_a_row
from tuner.records import TrialKind, TrialRecord
from tuner.verdicts.arms import FRESH_LAUNCHES
from tuner.verdicts.decision import finalists
from tuner.verdicts.ledger import unsettled_hypotheses
from tuner.verdicts.standing import judged, suspicious

CALIBRATION_LAUNCHES = 3
"""Baseline launches before anything else: the fewest that show a spread worth the name."""
SENTINEL_EVERY = 8
"""Launches after which the baseline is launched again, so that drift is not taken for gain."""
CONFIRM_LAUNCHES = 3
TIGHTEN_LAUNCHES = 6
"""With budget to spare: up to this many launches of what is still undecided."""

SETTLE_LAUNCHES = 2
"""Launches of a stated hypothesis that one left undecided: a second settles most of them."""

Phase = Literal["calibrate", "hypotheses", "search", "settle", "confirm", "tighten"]


_PHASES: dict[TrialKind, Phase] = {
    "baseline": "calibrate",
    "hypothesis": "hypotheses",
    "search": "search",
    "confirm": "confirm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One launch to make; without a configuration the search is asked for one.

    `reason` says why, where that is not the order of a night.
    """

    phase: Phase
    kind: TrialKind
    configuration: Configuration | None = None
    hypothesis: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to start until a launch in flight has ended."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more to launch, and why; `failed` is the baseline launch that ended the study."""

    reason: str
    failed: TrialRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that the choice of the next launch depends on.

    `launches_left` is what the budget still allows, None without limit, and `limit` which part of
    it allows no more; `exhausted` is whether the search has nothing left to propose;
    `session_start` is how many records there were when this run began: failures of an earlier run
    do not stop a later one.
    """

    space: Space
    objective: Objective
    baseline: Configuration
    records: Sequence[TrialRecord]
    pending: Sequence[Job]
    launches_left: int | None
    exhausted: bool
    session_start: int = 0
    limit: str = ""

    @property
    def total(self) -> int | None:
        """Launches that the whole budget allows, made ones included."""
        if self.launches_left is None:
            return None
        return self.launches_left + launches_made(self.records) + len(self.pending)


def standing_records(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The records that say something of their configuration: not what a person or the host cut
    short, nor what is void, nor a failure after which the baseline did not serve either, or was
    not heard yet."""
    return [
        record
        for record in judged(records)
        if record.tells and (record.kind == "baseline" or not _blames_host(record))
    ]


def _blames_host(record: TrialRecord) -> bool:
    return record.failure is not None and record.failure.action == "stop-study"


def launches_made(records: Sequence[TrialRecord]) -> int:
    """Launches that count against a budget of trials: all but those that were interrupted."""
    return sum(record.outcome != "interrupted" for record in records)


def next_job(now: Situation) -> Job | Wait | Stop:
    """The next launch by the order of a night."""
    halted = _halt(now)
    if halted:
        return halted
    if now.launches_left is not None and now.launches_left <= 0:
        return Wait() if now.pending else Stop(_used_up(now))
    for choose in (
        _canary,
        _repeat,
        _calibrate,
        _hypotheses,
        _sentinel,
        _search,
        _settle,
        _confirm,
        _tighten,
        _spare,
    ):
        choice = choose(now)
        if choice is not None:
            return choice
    return Wait() if now.pending else Stop("nothing is left to try or to settle")


def _used_up(now: Situation) -> str:
    return f"the budget is used up{f': {now.limit}' if now.limit else ''}"


def _halt(now: Situation) -> Stop | Wait | None:
    """The baseline that cannot serve or be measured ends the study: nothing could be compared."""
    void = void_in_a_row(now.records[now.session_start :])
    if void and void[0].kind == "baseline":
        return Wait() if now.pending else Stop("the baseline cannot be measured", failed=void[0])
    launches = [r for r in now.records[now.session_start :] if r.kind == "baseline"]
    if not launches or launches[-1].failure is None:
        return None
    last = launches[-1]
    first_try = len(launches) < 2 or launches[-2].failure is None
    if last.failure is not None and last.failure.action == "once" and first_try:
        return None
    return Wait() if now.pending else Stop("the baseline does not serve", failed=last)


def _canary(now: Situation) -> Job | Wait | None:
    """After failures that the host may have caused, the baseline tells a bad flag from it; after
    void launches, whether anything can be measured at all."""
    since = now.records[now.session_start :]
    if why := suspicious(since):
        why = f"{why}: does the host serve?"
    elif void := void_in_a_row(since):
        why = f"{len(void)} launches in a row were void: can the baseline be measured?"
    if not why:
        return None
    return Wait() if now.pending else _baseline_job(now, "search", why)


def _repeat(now: Situation) -> Job | None:
    """A launch that failed by no fault of its configuration is made once more, visibly."""
    standing = standing_records(now.records)
    for record in standing:
        if record.failure is None or record.failure.action != "once":
            continue
        same = [other for other in standing if _same_job(record, other)]
        pending = any(_key(job) == record.key and job.kind == record.kind for job in now.pending)
        if len(same) == 1 and not pending and record.kind != "baseline":
            return Job(
                phase=_PHASES[record.kind],
                kind=record.kind,
                configuration=now.space.configuration(record.values),
                hypothesis=record.hypothesis,
            )
    return None


def _same_job(a: TrialRecord, b: TrialRecord) -> bool:
    return (a.key, a.kind, a.hypothesis) == (b.key, b.kind, b.hypothesis)


def _key(job: Job) -> str | None:
    return job.configuration.key if job.configuration else None


def _baseline_job(now: Situation, phase: Phase, reason: str = "") -> Job:
    return Job(phase=phase, kind="baseline", configuration=now.baseline, reason=reason)


def _calibrate(now: Situation) -> Job | Wait | None:
    good = sum(r.kind == "baseline" and r.outcome == "completed" for r in now.records)
    pending = sum(job.kind == "baseline" for job in now.pending)
    if good + pending < CALIBRATION_LAUNCHES:
        return _baseline_job(now, "calibrate")
    # the ladder's noise must be known before anything is compared with it
    return Wait() if good < CALIBRATION_LAUNCHES else None


def ordered(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """By tier, then expected gain over effort; a parent always before its children."""

    def worth(h: Hypothesis) -> tuple[int, float]:
        low, high = h.gain_percent
        return h.tier, -(low + high) / 2 / EFFORT_HOURS[h.effort]

    left = sorted(hypotheses, key=worth)
    done: list[Hypothesis] = []
    while left:
        ids = {h.id for h in left}
        following = next(h for h in left if not ids.intersection(h.depends_on))
        left.remove(following)
        done.append(following)
    return done


def moot(hypothesis: Hypothesis, space: Space, records: Sequence[TrialRecord]) -> str | None:
    """The parent whose failure makes this hypothesis pointless, if there is one."""
    by_id = {h.id: h for h in space.hypotheses}
    records = standing_records(records)
    blocked = {r.hypothesis for r in records if r.outcome == "failed" and not r.rungs}
    served = {r.hypothesis for r in records if r.rungs}
    for parent in hypothesis.depends_on:
        if parent in blocked - served:
            return parent
        above = moot(by_id[parent], space, records)
        if above:
            return above
    return None


def _hypotheses(now: Situation) -> Job | Wait | None:
    tried = {r.hypothesis for r in standing_records(now.records)} | given_up(now.records)
    in_flight = {job.hypothesis for job in now.pending}
    for hypothesis in ordered(now.space.hypotheses):
        answered = hypothesis.id in tried | in_flight or now.space.is_idle(hypothesis)
        if answered or moot(hypothesis, now.space, now.records):
            continue
        if in_flight.intersection(hypothesis.depends_on):
            return Wait()
        configuration = now.space.hypothesis_configuration(hypothesis, now.baseline)
        return Job(
            phase="hypotheses",
            kind="hypothesis",
            configuration=configuration,
            hypothesis=hypothesis.id,
        )
    return None


def _sentinel(now: Situation) -> Job | None:
    if any(job.kind == "baseline" for job in now.pending):
        return None
    since = 0
    for record in reversed(now.records):
        if record.kind == "baseline" and record.outcome == "completed":
            break
        since += record.outcome != "interrupted"
    return _baseline_job(now, "search") if since >= SENTINEL_EVERY else None


def finalist_count(total: int | None) -> int:
    """How many candidates are launched afresh: two where the budget is no narrow one."""
    return 1 if total is not None and total < 24 else 2


def confirm_launches(total: int | None) -> int:
    """Fresh launches of each finalist."""
    return 2 if total is not None and total < 12 else CONFIRM_LAUNCHES


def reserve(total: int | None) -> int:
    """Launches kept back from the search for the confirmation: finalists and, between their
    rounds, the baseline."""
    return finalist_count(total) * confirm_launches(total) + confirm_launches(total) - 1


def _search(now: Situation) -> Job | None:
    if now.exhausted:
        return None
    if now.launches_left is not None and now.launches_left <= _owed(now):
        return None
    return Job(phase="search", kind="search")


def _owed(now: Situation) -> int:
    """Launches that settling and confirming would still cost if the search ended here.

    Never less than what one new finalist needs: the search may yet find it.
    """
    rounds, settling = confirm_launches(now.total), len(_unsettled(now, SETTLE_LAUNCHES))
    if not any(record.kind == "confirm" for record in now.records):
        return reserve(now.total) + settling
    keys = finalists(now.records, now.objective, now.baseline.key)[: finalist_count(now.total)]
    missing = sum(max(0, rounds - _confirmations(now, key)) for key in keys)
    between = max(
        (rounds - 1 - _baselines_since_first_confirmation(now, key) for key in keys), default=0
    )
    return max(missing + max(0, between), 2 * rounds - 1) + settling


def _unsettled(now: Situation, launches: int) -> list[TrialRecord]:
    """A launch of each hypothesis that is undecided after fewer launches than that."""
    found = []
    for key in unsettled_hypotheses(now.records, now.space.hypotheses, now.objective):
        of_it = [r for r in now.records if r.key == key and r.outcome in ("completed", "invalid")]
        pending = sum(_key(job) == key for job in now.pending)
        if made(of_it) + pending < launches:
            found.append(next(r for r in of_it if r.outcome == "completed"))
    return found


def _again(now: Situation, record: TrialRecord, phase: Phase) -> Job:
    return Job(
        phase=phase,
        kind="hypothesis",
        configuration=now.space.configuration(record.values),
        hypothesis=record.hypothesis,
    )


def _settle(now: Situation) -> Job | None:
    """Late in the night, so that more launches of the baseline stand beside the second one."""
    undecided = _unsettled(now, SETTLE_LAUNCHES)
    return _again(now, undecided[0], "settle") if undecided else None


def _confirm(now: Situation) -> Job | Wait | None:
    if any(job.kind in ("search", "hypothesis") for job in now.pending):
        return Wait()
    return _next_round(now, finalist_count(now.total), confirm_launches(now.total), "confirm")


def _next_round(now: Situation, finalists_at_most: int, rounds: int, phase: Phase) -> Job | None:
    """Finalists in turn, the baseline between the rounds: interleaved, so that drift is shared.

    One that was never launched afresh is not begun where the budget cannot bring it the fresh
    launches that a winner needs, and the baseline between them.
    """
    keys = finalists(now.records, now.objective, now.baseline.key)[:finalists_at_most]
    fresh = {key: _confirmations(now, key) for key in keys}
    room = now.launches_left is None or now.launches_left >= 2 * FRESH_LAUNCHES - 1
    open_keys = [key for key in keys if fresh[key] < rounds and (fresh[key] or room)]
    if not open_keys:
        return None
    behind = min(open_keys, key=lambda key: fresh[key])
    if fresh[behind] > _baselines_since_first_confirmation(now, behind):
        return _baseline_job(now, phase)
    values = next(r.values for r in now.records if r.key == behind)
    return Job(phase=phase, kind="confirm", configuration=now.space.configuration(values))


def _confirmations(now: Situation, key: str) -> int:
    fresh = made(r for r in now.records if r.kind == "confirm" and r.key == key)
    return fresh + sum(job.kind == "confirm" and _key(job) == key for job in now.pending)


def _baselines_since_first_confirmation(now: Situation, key: str) -> int:
    """Launches of the baseline beside the fresh ones of this configuration."""
    fresh = (i for i, r in enumerate(now.records) if r.kind == "confirm" and r.key == key)
    first = next(fresh, len(now.records))
    launched = sum(r.kind == "baseline" and r.tells for r in now.records[first:])
    return launched + sum(job.kind == "baseline" for job in now.pending)


def _tighten(now: Situation) -> Job | Wait | None:
    """With budget to spare, launch again what is still undecided."""
    if now.pending:
        return Wait()
    undecided = _unsettled(now, TIGHTEN_LAUNCHES)
    if undecided:
        return _again(now, undecided[0], "tighten")
    return _next_round(now, 1, TIGHTEN_LAUNCHES, "tighten")


def _spare(now: Situation) -> Job | None:
    """Too few launches are left to confirm anything: what they find is for the next run."""
    return None if now.exhausted else Job(phase="search", kind="search")
