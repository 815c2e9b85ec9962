"""How a rung is played on the servers of a launch, and what comes of it in numbers."""

from dataclasses import replace

from tuner.definitions.models import Rung
from tuner.definitions.slo import Slo
from tuner.load import Played, RungPlan, Target, play
from tuner.measuring.measurement import RequestTiming, RungMeasurement, measure
from tuner.measuring.validity import trial_doubts
from tuner.night.course import Course, Serving, TrialOrder
from tuner.night.rescoring import continuing
from tuner.night.silence import silences
from tuner.observers.observer import beside


def plan_of(order: TrialOrder, index: int) -> RungPlan:
    """The rung of that index as it is played first."""
    objective = order.objective
    return RungPlan.of(
        objective,
        index,
        lengths=order.lengths,
        prompt_seed=objective.seeds.prompts,
        texts=order.texts,
        offsets_s=order.offsets_s,
        replicas=order.replicas,
    )


async def played_rung(
    order: TrialOrder, serving: Serving, course: Course, index: int, plan: RungPlan
) -> Played:
    """Play it; what its servers forgot before, and what was seen meanwhile, is in the course."""
    objective, engine = order.objective, serving.engine
    target = Target(
        base_url=serving.https[0].base_url,
        replicas=tuple(http.base_url for http in serving.https[1:]),
        api=objective.api or engine.api,
        model=engine.served_model,
        time_scale=engine.time_scale,
    )
    course.flush = await _flush(serving)
    afterwards = continuing(order, serving, course, index)
    played = await play(target, plan, afterwards=afterwards, beat=serving.watch.beat)
    course.seen = await serving.observer.seen(*played.real_s)
    return played


async def _flush(serving: Serving) -> str:
    """That all servers forgot what earlier rungs asked, or why the first that did not did not."""
    for http in serving.https:
        refused = await serving.engine.flush(http)
        if refused:
            return refused
    return "done"


def judged(
    order: TrialOrder, serving: Serving, course: Course, rung: Rung, played: Played
) -> RungMeasurement:
    """The numbers of a rung, and what speaks against them."""
    engine = serving.engine
    seen = played.observed(engine.turnaround_s * engine.time_scale)
    measured = measured_by(order, rung, played)
    measured = measured.model_copy(
        update={"flush": course.flush, "observed": seen, **beside(course.seen, measured)}
    )
    slos = [Slo.parse(text) for text in order.objective.limits_at(rung)]
    doubts = [
        *silences(measured, played, order.replicas.launched),
        *trial_doubts(measured, seen, slos),
    ]
    return measured.model_copy(update={"doubts": doubts})


def measured_by(order: TrialOrder, rung: Rung, played: Played) -> RungMeasurement:
    """The numbers alone."""
    return measure(
        played.timings,
        concurrency=rung.concurrency,
        request_rate=rung.request_rate,
        start_s=played.start_s,
        end_s=played.end_s,
        gpus=order.host_gpus or order.gpus,
        lags_s=played.lags_s,
        unsent_s=played.unsent_s,
        slos=[Slo.parse(text) for text in order.objective.slos_at(rung)],
        replicas=order.replicas,
    )


def of_each(
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
        place: measured_by(order, rung, replace(played, timings=tuple(timings)))
        for place, timings in sorted(own.items())
    }
