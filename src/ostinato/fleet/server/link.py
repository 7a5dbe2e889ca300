"""A front's end of one node: what it reported last, and the calls that make it do things."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ostinato.fleet.client.client import Client, ConflictError, GoneError, RefusalError
from ostinato.fleet.scheduler.pod import Pressure, Request, Running, Size
from ostinato.fleet.server.templates import Templates
from ostinato.fleet.server.wishes import ControlError, Info, Wish, read_info, read_wish
from ostinato.sandbox.base import SandboxError

log = logging.getLogger(__name__)
REPORT_S = 3.0
"""How long a report may take; a node that needs longer counts as silent."""
UPLOAD_S = 600.0
WARM = "warm-"


class Link:
    """One node. Its failures come as ControlError 503, its refusals as they are."""

    def __init__(self, client: Client, templates: Templates) -> None:
        self.client = client
        self._templates = templates
        self.report: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """As the node calls itself, with its address: names alone may be the same."""
        return f"{self.report['name']}@{self.client.url}"

    async def ask(self) -> Mapping[str, Any]:
        """A fresh report. Raises SandboxError."""
        report: Mapping[str, Any] = await self.client.call("GET", "/node", within_s=REPORT_S)
        self.report = report
        return report

    @property
    def capacity(self) -> Size:
        return Size(*self.report["capacity"])

    @property
    def pressure(self) -> Pressure:
        told = self.report["pressure"]
        return Pressure(
            cpu=told["cpu"], memory=told["memory"], disk=told["disk"], stalls=tuple(told["stalls"])
        )

    def running(self) -> list[Running]:
        found = []
        for each in self.report["pods"]:
            wish = read_wish(each["wish"], "")
            deadline_s = max(each["age_s"] + each["left_s"], 1.0)
            request = to_request(wish, deadline_s=deadline_s)
            pooled = wish.id.startswith(WARM)
            found.append(Running(request=request, age_s=each["age_s"], pooled=pooled))
        return found

    async def create(self, wish: Wish) -> Info:
        """The node is sent the template when it lacks it."""
        try:
            return await self._create(wish)
        except GoneError:
            await self._send(wish.template)
            return await self._create(wish)

    async def _create(self, wish: Wish) -> Info:
        return read_info(await self.client.call("POST", "/sandboxes", wish.body()))

    async def _send(self, template: str) -> None:
        try:
            data = await asyncio.to_thread(self._templates.packed, template)
        except FileNotFoundError:
            raise ControlError(404, f"there is no template {template}: send it first") from None
        await self.client.call("PUT", f"/templates/{template}", data=data, within_s=UPLOAD_S)

    async def provide(self, template: str) -> None:
        """Makes sure that the node has a template."""
        try:
            await self.client.call("GET", f"/templates/{template}")
        except GoneError:
            await self._send(template)

    async def claim(self, warm: str, wish: Wish) -> Info:
        body = {"warm": warm, "wish": wish.body()}
        return read_info(await self.client.call("POST", "/claims", body))

    async def end(self, pod: str) -> None:
        """Ends a sandbox that may be gone already; a node that does not answer ends it by its time."""
        try:
            await self.client.call("DELETE", f"/sandboxes/{pod}")
        except GoneError:
            return
        except SandboxError as error:
            log.warning("sandbox %s was not ended: %s", pod, error)

    async def control(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None, *, within_s: float = 60.0
    ) -> Any:
        """A call whose refusal is passed on. Raises ControlError."""
        try:
            return await self.client.call(verb, path, body, within_s=within_s)
        except SandboxError as error:
            raise passed_on(error) from error


def passed_on(error: SandboxError) -> ControlError:
    """A node's answer as the front's."""
    match error:
        case ControlError():
            return error
        case GoneError():
            return ControlError(404, str(error))
        case ConflictError():
            return ControlError(409, str(error))
        case RefusalError():
            return ControlError(429, str(error), error.retry_after_s)
    return ControlError(503, str(error), 1.0)


def to_request(
    wish: Wish, *, deadline_s: float, parent: str | None = None, only_on: str | None = None
) -> Request:
    """A wish as the scheduler sees it. Warm sandboxes have the usual limits: others are another template."""
    usual = wish.limits == Wish(id="", template="").limits and wish.egress is None
    return Request(
        id=wish.id,
        template=wish.template if usual else f"{wish.template}!{hash(wish.limits):x}",
        size=wish.size,
        deadline_s=deadline_s,
        parent=parent,
        only_on=only_on,
        labels=wish.metadata,
    )
