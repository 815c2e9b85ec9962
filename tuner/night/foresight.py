"""How the launches that are left will be used: the order of `schedule`, in numbers. Pure.

What the launches will show is not known, so the longest night is foreseen: every hypothesis serves
and stays undecided, and the search finds as many candidates as are launched afresh.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.definitions.models import Hypothesis
from tuner.definitions.validation import LoadedStudy
from tuner.night.relaunching import given_up
from tuner.night.schedule import (
    CALIBRATION_LAUNCHES,
    SENTINEL_EVERY,
    SETTLE_LAUNCHES,
    TIGHTEN_LAUNCHES,
    Phase,
    confirm_launches,
    finalist_count,
    launches_made,
    moot,
    ordered,
    reserve,
    standing_records,
)
from tuner.records import TrialRecord
from tuner.verdicts.arms import FRESH_LAUNCHES
from tuner.verdicts.decision import finalists
from tuner.verdicts.ledger import unsettled_hypotheses

Use = tuple[Phase, bool]
"""A phase, and whether the launch is one of the baseline."""
_OWED: frozenset[Phase] = frozenset({"calibrate", "hypotheses", "settle", "confirm"})
_LONGEST = 100_000
"""Launches after which a night without a limit is not looked at further."""


def to_run(study: LoadedStudy, records: Sequence[TrialRecord]) -> list[Hypothesis]:
    """The hypotheses that are still to be launched, in their order."""
    tried = {record.hypothesis for record in standing_records(records)} | given_up(records)
    return [
        hypothesis
        for hypothesis in ordered(study.space.hypotheses)
        if hypothesis.id not in tried
        and not study.space.is_idle(hypothesis)
        and not moot(hypothesis, study.space, records)
    ]


def foresee(
    study: LoadedStudy, records: Sequence[TrialRecord], left: int | None
) -> tuple[Counter[Use], Counter[Use]]:
    """How the launches that are left will be used, and what the night owes beyond them.

    Where there is no limit, that is all there is to do but for a continuous search, which would
    never end. To search less, or to tighten less, is owed to nobody.
    """
    used = _night(study, records, left).run(left)
    whole = _night(study, records, left)
    whole.search = 0
    beyond = whole.run(None) - used
    if not beyond["confirm", False]:  # a launch that is due to drift stands between as well
        del beyond["confirm", True]
    return used, Counter({use: n for use, n in beyond.items() if use[0] in _OWED})


@dataclass(slots=True, kw_only=True)
class _Candidate:
    """A configuration that is launched afresh, and the baseline's launches since."""

    fresh: int = 0
    between: int = 0


@dataclass(slots=True, kw_only=True)
class _Night:
    """The schedule as far as it counts launches: each step takes the first choice that has one.

    `undecided` holds the launches made of each hypothesis' configuration, `search` how many are
    left to propose, `since` the launches after the last one of the baseline.
    """

    total: int | None
    calibrate: int
    hypotheses: int
    undecided: list[int]
    search: int
    candidates: list[_Candidate]
    since: int

    def run(self, left: int | None) -> Counter[Use]:
        """The launches by use, until there are no more or nothing is left to do."""
        used: Counter[Use] = Counter()
        most = _LONGEST if left is None else left
        while (made := used.total()) < most:
            use = self._step(most - made)
            if use is None:
                break
            used[use] += 1
        return used

    def _step(self, left: int) -> Use | None:
        choices = (
            self._calibrate,
            self._hypotheses,
            self._sentinel,
            self._search,
            self._settle,
            self._confirm,
            self._tighten,
            self._spare,
        )
        use = next((use for choose in choices if (use := choose(left))), None)
        if use is not None and use[1]:
            self.since = 0
            for candidate in self.candidates:
                candidate.between += candidate.fresh > 0
        else:
            self.since += 1
        return use

    def _calibrate(self, left: int) -> Use | None:
        if not self.calibrate:
            return None
        self.calibrate -= 1
        return "calibrate", True

    def _hypotheses(self, left: int) -> Use | None:
        if not self.hypotheses:
            return None
        self.hypotheses -= 1
        return "hypotheses", False

    def _sentinel(self, left: int) -> Use | None:
        return ("search", True) if self.since >= SENTINEL_EVERY else None

    def _search(self, left: int) -> Use | None:
        return self._spare(left) if left > self._owed() else None

    def _spare(self, left: int) -> Use | None:
        if not self.search:
            return None
        self.search -= 1
        return "search", False

    def _settle(self, left: int) -> Use | None:
        return self._again(SETTLE_LAUNCHES, "settle")

    def _confirm(self, left: int) -> Use | None:
        return self._round(self.candidates, confirm_launches(self.total), "confirm", left)

    def _tighten(self, left: int) -> Use | None:
        again = self._again(TIGHTEN_LAUNCHES, "tighten")
        return again or self._round(self.candidates[:1], TIGHTEN_LAUNCHES, "tighten", left)

    def _again(self, launches: int, phase: Phase) -> Use | None:
        place = next((n for n, made in enumerate(self.undecided) if made < launches), None)
        if place is None:
            return None
        self.undecided[place] += 1
        return phase, False

    def _round(
        self, candidates: Sequence[_Candidate], rounds: int, phase: Phase, left: int
    ) -> Use | None:
        room = left >= 2 * FRESH_LAUNCHES - 1
        behind = min(
            (c for c in candidates if c.fresh < rounds and (c.fresh or room)),
            key=lambda candidate: candidate.fresh,
            default=None,
        )
        if behind is None:
            return None
        if behind.fresh > behind.between:
            return phase, True
        behind.fresh += 1
        return phase, False

    def _owed(self) -> int:
        rounds = confirm_launches(self.total)
        settling = sum(made < SETTLE_LAUNCHES for made in self.undecided)
        if not any(candidate.fresh for candidate in self.candidates):
            return reserve(self.total) + settling
        missing = sum(max(0, rounds - c.fresh) for c in self.candidates)
        between = max(0, *(rounds - 1 - c.between for c in self.candidates))
        return max(missing + between, 2 * rounds - 1) + settling


def _night(study: LoadedStudy, records: Sequence[TrialRecord], left: int | None) -> _Night:
    total = None if left is None else left + launches_made(records)
    measured = sum(r.kind == "baseline" and r.outcome == "completed" for r in records)
    ahead = to_run(study, records)
    return _Night(
        total=total,
        calibrate=max(0, CALIBRATION_LAUNCHES - measured),
        hypotheses=len(ahead),
        undecided=_undecided(study, records, ahead),
        search=proposals(study, records, left),
        candidates=_candidates(study, records, finalist_count(total)),
        since=_since_baseline(records),
    )


def _undecided(
    study: LoadedStudy, records: Sequence[TrialRecord], ahead: Sequence[Hypothesis]
) -> list[int]:
    """Launches, the coming first ones included, of each configuration that may stay undecided."""
    made = Counter(r.key for r in records if r.outcome == "completed")
    keys = unsettled_hypotheses(records, study.space.hypotheses, study.objective)
    coming = [study.space.hypothesis_configuration(h, study.baseline).key for h in ahead]
    new = dict.fromkeys(key for key in coming if key != study.baseline.key)
    return [made[key] for key in keys] + [max(1, made[key]) for key in new if key not in keys]


def proposals(study: LoadedStudy, records: Sequence[TrialRecord], left: int | None) -> int:
    """What the search can still propose: all that the space holds and nobody stated or launched."""
    size = study.space.size()
    if size is None:
        return 0 if left is None else left
    hypotheses = study.space.hypotheses
    stated = (study.space.hypothesis_configuration(h, study.baseline) for h in hypotheses)
    known = {study.baseline.key, *(c.key for c in stated), *(r.key for r in records)}
    return max(0, size - len(known))


def _candidates(study: LoadedStudy, records: Sequence[TrialRecord], count: int) -> list[_Candidate]:
    """The finalists as they stand; those that the search is yet to find have no launch."""
    keys = finalists(records, study.objective, study.baseline.key)[:count]
    known = [_candidate(records, key) for key in keys]
    return known + [_Candidate() for _ in range(count - len(known))]


def _candidate(records: Sequence[TrialRecord], key: str) -> _Candidate:
    launched = [r for r in records if r.tells]
    fresh = [n for n, r in enumerate(launched) if r.kind == "confirm" and r.key == key]
    since = launched[fresh[0] :] if fresh else []
    return _Candidate(fresh=len(fresh), between=sum(r.kind == "baseline" for r in since))


def _since_baseline(records: Sequence[TrialRecord]) -> int:
    since = 0
    for record in reversed(records):
        if record.kind == "baseline" and record.outcome == "completed":
            break
        since += record.outcome != "interrupted"
    return since
