"""The rungs of a launch, one after another: play, measure, judge, and stop early without hope."""

from collections.abc import Mapping
from dataclasses import replace

from tuner.definitions.models import Rung
from tuner.errors import HttpError
from tuner.hosts.executor import Note
from tuner.load import Played, RungPlan, Target, play
from tuner.measuring.measurement import RequestTiming, RungMeasurement, measure
from tuner.measuring.quality import output_quality, wrong_output
from tuner.night.causes import refused, wrong
from tuner.night.course import Course, Serving, TrialNote, TrialOrder
from tuner.night.requests import keep_requests
from tuner.night.rescoring import continuing
from tuner.verdicts.score import hopeless

_ASK_IT = "Ask a server that was launched by hand for a completion; its log may say more."


async def climb(order: TrialOrder, serving: Serving, course: Course, note: Note) -> None:
    """Play the ladder from its first rung on, until its end or until there is no hope."""
    for index, rung in enumerate(order.objective.ladder):
        note(TrialNote(number=order.number, phase="rung", at=rung.said))
        played = await serving.watch.unless_doomed(_play(order, serving, course, index))
        course.failed_replica = serving.watch.failed
        if played is None:
            course.outcome = "failed"
            return
        measured = _measured(order, rung, played)
        keep_requests(serving.servers[0].log_path.parent, rung, played.timings)
        course.quality += output_quality(played.timings)
        _judge(order, course, _of_each(order, rung, played, measured))
        if course.outcome == "failed":
            return
        course.rungs.append(measured)
        note(TrialNote(number=order.number, phase="rung", at=rung.said, rung=measured))
        if order.prune and index + 1 < len(order.objective.ladder):
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
                return


async def _play(order: TrialOrder, serving: Serving, course: Course, index: int) -> Played:
    objective, engine = order.objective, serving.engine
    target = Target(
        base_url=serving.https[0].base_url,
        replicas=tuple(http.base_url for http in serving.https[1:]),
        api=engine.api,
        model=engine.served_model,
        time_scale=engine.time_scale,
    )
    plan = RungPlan.of(
        objective,
        index,
        lengths=order.lengths,
        prompt_seed=objective.seeds.prompts,
        replicas=order.replicas,
    )

    async def probe() -> tuple[float, float] | None:
        try:
            loads = [await engine.load_now(http) for http in serving.https]
        except HttpError:
            return None
        told = [load for load in loads if load is not None]
        if len(told) < len(loads):
            return None
        return sum(running for running, _ in told), sum(queued for _, queued in told)

    afterwards = continuing(order, serving, course, index)
    return await play(target, plan, probe=probe, afterwards=afterwards)


def _measured(order: TrialOrder, rung: Rung, played: Played) -> RungMeasurement:
    return measure(
        played.timings,
        concurrency=rung.concurrency,
        request_rate=rung.request_rate,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=order.host_gpus or order.gpus,
        load_samples=played.load_samples,
        lags_s=played.lags_s,
        replicas=order.replicas,
    )


def _of_each(
    order: TrialOrder, rung: Rung, played: Played, measured: RungMeasurement
) -> dict[int, RungMeasurement]:
    """The rung by server, of those that had streams."""
    servers = order.replicas.launched
    if servers == 1:
        return {0: measured}
    own: dict[int, list[RequestTiming]] = {}
    for timing in played.timings:
        own.setdefault(timing.stream % servers, []).append(timing)
    return {
        place: _measured(order, rung, replace(played, timings=tuple(timings), load_samples=()))
        for place, timings in sorted(own.items())
    }


def _judge(order: TrialOrder, course: Course, parts: Mapping[int, RungMeasurement]) -> None:
    """What the answers of servers that live say against them."""
    fault = wrong_output(course.quality, order.baseline_quality)
    silent = next((place for place, part in parts.items() if part.output_tok_s == 0), None)
    if fault:
        course.outcome, course.failure = "failed", wrong(order.launch, order.nearest, fault)
    elif silent is not None:
        course.outcome, course.failed_replica = "failed", silent
        error = parts[silent].first_error
        if error:
            words = f"every request failed: {error}"
            course.failure = refused(order.launch, words, phase="serving", advice=_ASK_IT)
