"""The rungs of a launch, one after another: play, measure, judge, and stop early without hope.

A rung whose numbers are void is measured once more, as what speaks against them asks for. Void
again it ends the ladder: the launch says nothing, of whichever configuration, unless a server that
was asked gave no token in either window.
"""

from collections.abc import Mapping

from tuner.definitions.models import Rung
from tuner.hosts.executor import Note
from tuner.load import Played
from tuner.measuring.measurement import RungMeasurement
from tuner.measuring.quality import OutputQuality, output_quality, wrong_output
from tuner.night.causes import refused, wrong
from tuner.night.course import Course, Serving, TrialNote, TrialOrder
from tuner.night.heeding import heeded, idle_cores
from tuner.night.playing import judged, of_each, plan_of, played_rung
from tuner.night.requests import keep_requests
from tuner.night.silence import silent
from tuner.verdicts.score import hopeless

ATTEMPTS = 2
"""Times that a rung is measured before it is given up as void."""
_ASK_IT = "Ask a server that was launched by hand for a completion; its log may say more."


async def climb(order: TrialOrder, serving: Serving, course: Course, note: Note) -> None:
    """Play the ladder from its first rung on, until its end or until there is no hope."""
    for index, rung in enumerate(order.objective.ladder):
        measured = await _believed(order, serving, course, note, index)
        if measured is None:
            return
        course.rungs.append(measured)
        note(TrialNote(number=order.number, phase="rung", at=rung.said, rung=measured))
        if order.prune and index + 1 < len(order.objective.ladder) and _hopeless(order, course):
            return


async def _believed(
    order: TrialOrder, serving: Serving, course: Course, note: Note, index: int
) -> RungMeasurement | None:
    """The rung's numbers once they may be believed; None where the ladder ends here."""
    rung, plan = order.objective.ladder[index], plan_of(order, index)
    mute = set(range(order.replicas.launched))
    for attempt in range(ATTEMPTS):
        note(TrialNote(number=order.number, phase="rung", at=rung.said, again=attempt > 0))
        played = await serving.watch.unless_doomed(played_rung(order, serving, course, index, plan))
        if played is None:
            course.lost(serving.watch)
            return None
        measured = judged(order, serving, course, rung, played)
        keep_requests(serving.servers[0].log_path.parent, rung, played.timings, attempt)
        _heard(order, course, rung, played, measured)
        if course.outcome == "failed":
            return None
        if not measured.void:
            return measured
        mute &= silent(played, order.replicas.launched)
        course.invalid.append(measured)
        note(TrialNote(number=order.number, phase="rung", at=rung.said, rung=measured))
        plan = heeded(
            plan,
            measured.doubts,
            rungs=len(order.objective.ladder),
            idle_cores=idle_cores(measured),
        )
    course.outcome = "invalid"
    if mute:
        last_s = course.invalid[-1].window_s
        said = f"no token in {ATTEMPTS} windows at {rung.said}, the last of {last_s:.3g} s"
        course.silent(min(mute), said)
    return None


def _heard(
    order: TrialOrder,
    course: Course,
    rung: Rung,
    played: Played,
    measured: RungMeasurement,
) -> None:
    """What was answered speaks for or against a configuration, whatever the numbers are worth."""
    heard = course.quality_at.get(rung.level, OutputQuality()) + output_quality(played.timings)
    course.quality_at[rung.level] = heard
    _judge(order, course, rung, of_each(order, rung, played, measured))


def _hopeless(order: TrialOrder, course: Course) -> bool:
    course.pruned_because = hopeless(
        course.rungs,
        order.reference,
        order.noise,
        order.objective,
        order.best,
        ceilings=order.ceilings,
    )
    if course.pruned_because:
        course.outcome = "pruned"
    return bool(course.pruned_because)


def _judge(
    order: TrialOrder, course: Course, rung: Rung, parts: Mapping[int, RungMeasurement]
) -> None:
    """What the answers of servers that live say against them. That none came within a window says
    nothing: the first of a slow server may take longer, and one of several may not be asked."""
    usual = order.baseline_quality.get(rung.level, OutputQuality())
    fault = wrong_output(course.quality_at[rung.level], usual)
    refuses = next(
        (place for place, part in parts.items() if part.requests_failed and not part.output_tok_s),
        None,
    )
    if fault:
        course.outcome, course.failure = "failed", wrong(order.launch, order.nearest, fault)
    elif refuses is not None:
        course.outcome, course.failed_replica = "failed", refuses
        words = f"every request failed: {parts[refuses].first_error}"
        course.failure = refused(order.launch, words, phase="serving", advice=_ASK_IT)
