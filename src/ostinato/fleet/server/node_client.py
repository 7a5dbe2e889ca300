"""A front's connection to one node: the node's last report, and the calls that it carries out."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ostinato.fleet.client.client import ConflictError, GoneError, RefusalError, SandboxClient
from ostinato.fleet.scheduler.types import PlacementRequest, Pressure, ReportedSandbox, Size
from ostinato.fleet.server.control import ControlError, SandboxInfo, SandboxRequest, read_info, read_request
from ostinato.fleet.server.templates import Templates
from ostinato.sandbox.base import SandboxError

log = logging.getLogger(__name__)
REPORT_S = 3.0
"""The longest time of a report; a node that needs longer counts as silent."""
UPLOAD_S = 600.0
WARM = "warm-"


class NodeClient:
    """One node. Its failures are raised as ControlError 503, its refusals as they are."""

    def __init__(self, client: SandboxClient, templates: Templates) -> None:
        self.client = client
        self._templates = templates
        self.report: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """The node's own name and its address, since two nodes may have the same name."""
        return f"{self.report['name']}@{self.client.url}"

    async def fetch_report(self) -> Mapping[str, Any]:
        """Fetch a fresh report. Raises SandboxError."""
        report: Mapping[str, Any] = await self.client.call("GET", "/node", within_s=REPORT_S)
        self.report = report
        return report

    @property
    def capacity(self) -> Size:
        return Size(*self.report["capacity"])

    @property
    def pressure(self) -> Pressure:
        fields = self.report["pressure"]
        return Pressure(**{**fields, "stalls": tuple(fields["stalls"])})

    def running(self) -> list[ReportedSandbox]:
        reported = []
        for each in self.report["pods"]:
            wanted = read_request(each["wish"], "")
            deadline_s = max(each["age_s"] + each["left_s"], 1.0)
            request = to_placement_request(wanted, deadline_s=deadline_s)
            pooled = request.id.startswith(WARM)
            reported.append(ReportedSandbox(request=request, age_s=each["age_s"], pooled=pooled))
        return reported

    async def create(self, request: SandboxRequest) -> SandboxInfo:
        """Create a sandbox. Send the node the template first if it lacks it."""
        try:
            return await self._create(request)
        except GoneError:
            await self._send(request.template)
            return await self._create(request)

    async def _create(self, request: SandboxRequest) -> SandboxInfo:
        return read_info(await self.client.call("POST", "/sandboxes", request.body()))

    async def _send(self, template: str) -> None:
        try:
            data = await asyncio.to_thread(self._templates.packed, template)
        except FileNotFoundError:
            raise ControlError(404, f"there is no template {template}: send it first") from None
        await self.client.call("PUT", f"/templates/{template}", data=data, within_s=UPLOAD_S)

    async def provide(self, template: str) -> None:
        """Send the node a template unless it has it."""
        try:
            await self.client.call("GET", f"/templates/{template}")
        except GoneError:
            await self._send(template)

    async def claim(self, warm: str, request: SandboxRequest) -> SandboxInfo:
        body = {"warm": warm, "wish": request.body()}
        return read_info(await self.client.call("POST", "/claims", body))

    async def end(self, sandbox: str) -> None:
        """End a sandbox that may be gone already. A silent node ends it when its time is over."""
        try:
            await self.client.call("DELETE", f"/sandboxes/{sandbox}")
        except GoneError:
            return
        except SandboxError as error:
            log.warning("sandbox %s was not ended: %s", sandbox, error)

    async def control(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None, *, within_s: float = 60.0
    ) -> Any:
        """Make a control call and pass its refusal on. Raises ControlError."""
        try:
            return await self.client.call(verb, path, body, within_s=within_s)
        except SandboxError as error:
            raise to_control_error(error) from error


def to_control_error(error: SandboxError) -> ControlError:
    """Return a node's refusal as the front's own."""
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


def to_placement_request(
    request: SandboxRequest, *, deadline_s: float, parent: str | None = None, only_on: str | None = None
) -> PlacementRequest:
    """Return a request as the scheduler sees it.

    Warm sandboxes have the usual limits, so a request with other limits counts as another template.
    """
    usual = request.limits == SandboxRequest(id="", template="").limits and request.egress is None
    return PlacementRequest(
        id=request.id,
        template=request.template if usual else f"{request.template}!{hash(request.limits):x}",
        size=request.size,
        deadline_s=deadline_s,
        parent=parent,
        only_on=only_on,
        labels=request.metadata,
    )
