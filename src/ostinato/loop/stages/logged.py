"""The stages of a cycle or of a trial: each is kept in the run folder, and its begin and end are logged."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ostinato.deploy.control import CycleControl
from ostinato.loop.base import Resources
from ostinato.store.cycle_log import CycleAction

T = TypeVar("T")


class LoggedStages:
    """The stages of the cycle or trial `name`, which begin while nobody has paused it."""

    def __init__(self, resources: Resources, name: str) -> None:
        self._resources = resources
        self.name = name
        self.control = CycleControl(resources.store, name, resources.poll_s)

    async def done(self, name: str, schema: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a stage: from the run folder if it is done, else from doing it."""
        full, control = f"{self.name}/{name}", self.control
        if self._resources.run.result(full, schema) is not None:
            kept = await self._resources.stage(full, schema, work)
            control.log_once(CycleAction.STAGE_DONE, name)
            return kept
        await control.go_on()
        control.log(CycleAction.STAGE_BEGAN, name)
        result = await self._resources.stage(full, schema, work)
        control.log(CycleAction.STAGE_DONE, name)
        return result
