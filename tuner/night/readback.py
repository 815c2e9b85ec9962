"""What a server really runs with, read back before anything is measured."""

import hashlib
import json
import logging
from collections.abc import Collection, Mapping

from tuner.definitions.models import Value
from tuner.engines.base import LaunchSpec
from tuner.engines.warned import warnings_of
from tuner.errors import HttpError
from tuner.night.course import Course, Serving, TrialOrder

logger = logging.getLogger(__name__)


async def read_back(order: TrialOrder, serving: Serving, course: Course) -> None:
    """What the server really runs with; a twin of an earlier trial is not measured again.

    The servers of a set are told alike and asked one by one: the first speaks for all.
    """
    engine = serving.engine
    for server, http in reversed(list(zip(serving.servers, serving.https, strict=True))):
        log, other = server.log(), course.effective
        try:
            course.effective = await engine.effective(http, log)
            course.overridden = engine.overridden(course.effective, log)
            facts = await engine.facts(http, log)
            course.facts = facts.model_copy(update={"warnings": warnings_of(log)})
        except HttpError as error:  # if it is dead the ladder says why; else it just does not tell
            logger.warning("trial %d: arguments could not be read back: %s", order.number, error)
        if other and other != course.effective:
            logger.warning("trial %d: its servers do not run with the same", order.number)
    if course.effective:
        course.effective_key = effective_key(course.effective, order.launch, order.dead)
        course.duplicate_of = order.known.get(course.effective_key)
    if course.duplicate_of is not None:
        course.outcome = "duplicate"


def effective_key(
    effective: Mapping[str, Value], launch: LaunchSpec, dead: Collection[str] = ()
) -> str:
    """12 hex digits that two launches share only if they run with the same arguments, variables
    and build; `dead` arguments are read by nothing, whatever they say."""
    read = sorted(item for item in effective.items() if item[0] not in dead)
    identity = json.dumps([read, sorted(launch.env.items()), launch.build], default=str)
    return hashlib.sha256(identity.encode()).hexdigest()[:12]
