"""What a server says under load, and how it scores what others said, without a night around it."""

from types import SimpleNamespace
from typing import Any

from tuner import engines
from tuner.definitions.models import Objective
from tuner.engines.base import LaunchSpec
from tuner.http.client import Http
from tuner.load import Target, play
from tuner.measuring.fidelity import Continuation
from tuner.night.course import Course, TrialOrder
from tuner.night.playing import plan_of
from tuner.night.rescoring import continuing, rescore
from tuner.records import TrialKind, TrialRecord

LADDER = '{"ladder": [{"concurrency": 1}, {"concurrency": 4}, {"concurrency": 16}]'
SHORT = f'{LADDER}, "input_tokens": 16, "output_tokens": 32, "warmup_s": 5, "window_s": 10}}'


def order_of(
    launch: LaunchSpec, records: list[TrialRecord], kind: TrialKind, ladder: str = SHORT
) -> TrialOrder:
    """The order of a launch of which only its words matter; one of the baseline scores."""
    return TrialOrder(
        number=len(records),
        kind=kind,
        key="k",
        values={},
        launch=launch,
        gpus=1,
        objective=Objective.model_validate_json(ladder),
        lengths=((16, 32),),
        to_rescore=unscored(records) if kind == "baseline" else {},
    )


def unscored(records: list[TrialRecord]) -> dict[int, list[Continuation]]:
    """What was said and no launch of the baseline has scored."""
    scored = {number for record in records for number in record.rescored}
    said = {r.number: r.continuations for r in records if r.continuations}
    return {number: words for number, words in said.items() if number not in scored}


async def spoken(order: TrialOrder, port: int, levels: tuple[int, ...] = (0, 2)) -> Course:
    """Play those rungs, have the passages continued, then score what is to be scored."""
    engine, course = engines.create(order.launch), Course()
    async with Http(f"http://127.0.0.1:{port}") as http:
        serving: Any = SimpleNamespace(engine=engine, https=(http,))
        for index in levels:
            target = Target(
                base_url=http.base_url,
                api=engine.api,
                model=engine.served_model,
                time_scale=engine.time_scale,
            )
            asked = continuing(order, serving, course, index)
            await play(target, plan_of(order, index), afterwards=asked)
        await rescore(order, serving, course)
    return course
