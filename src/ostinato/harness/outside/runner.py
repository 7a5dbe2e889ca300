"""Episodes of an outside harness: it works in the sandbox, and the gateway records what its model did.

Task ──► sandbox, harness mounted ──relay──► door ──► gateway ──► changes ──► Verifier ──► Episode
"""

import json
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import aiohttp

from ostinato.harness.client import GatewayClient, GatewayRefused, GatewayUnavailable
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import Episode, Left, Sampled, changes_left, failed, refused, verified
from ostinato.harness.outside import relay
from ostinato.harness.outside.config import OutsideConfig
from ostinato.harness.outside.door import SOCKET, ModelDoor
from ostinato.harness.outside.starts import HOME, PLACE
from ostinato.harness.users import Answering
from ostinato.sandbox.base import Backend, ExecResult, Limits, Mount, SandboxError, Spec, Unsupported
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.types import Ending, Signal, SignalKind, Source, Task, new_id

_PORT = 8111
_PLACE_OF_DOOR = "/run/door"
_RELAY = Path(str(relay.__file__)).read_text()
_ADDRESS_SPACE_MB = 1 << 20
"""A bound for the address space of one process: Node.js reserves far more than it uses."""
_TAIL = 2000


class OutsideRunner:
    """A runner of episodes whose agent is somebody else's harness; any number of them may run at once.

    `key` is an admin key of the gateway at `url`, which only the door holds. The user of a session is not
    asked, since the harness has no way to ask.
    """

    def __init__(
        self, url: str, key: str, backend: Backend, verifier: Verifier, config: OutsideConfig
    ) -> None:
        config.check()
        if backend.name != "ns":
            raise Unsupported(backend.name, "show the model's socket to a harness", "ns")
        self._url, self._key = url, key
        self._backend = backend
        self._verifier = verifier
        self._config = config
        self.harness = config.name
        """The harness that every episode runs under."""

    async def run(self, task: Task, user: Answering, *, source: Source) -> Episode:
        """Run one session and verify what it left."""
        ((outcome, left),) = (await self.grow(task, user, source=source, session_id=new_id())).ended
        return await self.verify(task, outcome, left)

    async def verify(self, task: Task, outcome: Outcome, changes: Left) -> Episode:
        """Return the episode of a session that ended with these changes."""
        return await verified(self._verifier, task, outcome, changes)

    async def grow(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        session_id: str,
        seed: int | None = None,
        after: int = 1,
        branches: int = 1,
    ) -> Sampled:
        """Run one session; a sandbox that fails makes it end as INFRASTRUCTURE.

        The harness chooses its own settings, so `seed` is not used: the gateway derives the seeds from the
        session's id. Raises Unsupported for `branches` above 1.
        """
        if branches > 1:
            raise Unsupported("an outside harness", "fork a session", "our own agent")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
            door = ModelDoor(
                url=self._url,
                headers=self._headers(session_id, task, source),
                http=http,
                max_turns=self._config.max_turns,
            )
            try:
                result, left, unmet = await self._work(task, door)
            except SandboxError as error:
                return Sampled(trunk=None, ended=((failed(session_id, error), {}),))
            outcome = await self._ended(self._outcome(session_id, door, result), http)
        return Sampled(trunk=None, ended=((replace(outcome, refused=unmet), left),))

    def _headers(self, session_id: str, task: Task, source: Source) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._key}",
            "X-Session-Id": session_id,
            "X-Session-Source": source.value,
            "X-Task-Id": task.id,
            "X-Harness-Hash": self.harness,
        }

    async def _work(self, task: Task, door: ModelDoor) -> tuple[ExecResult, Left, int]:
        """Let the harness work in a fresh sandbox.

        Returns how it ended, the files that it changed and the number of connections that it was refused.
        """
        config = self._config
        limits = Limits(
            memory_mb=_ADDRESS_SPACE_MB,
            cpu_s=int(config.wall_s),
            wall_s=config.wall_s,
            processes=256,
            disk_mb=config.disk_mb,
            output_bytes=200_000,
        )
        start = config.start(f"http://127.0.0.1:{_PORT}", task.instruction)
        order = {
            "socket": f"{_PLACE_OF_DOOR}/{SOCKET}",
            "port": _PORT,
            "home": HOME,
            "command": start.command,
            "environment": dict(start.environment),
            "files": dict(start.files),
        }
        with tempfile.TemporaryDirectory(prefix="ostinato-door-") as folder:
            async with door.open(Path(folder)):
                mounts = (
                    Mount(source=config.directory.resolve(), target=PLACE),
                    Mount(source=Path(folder), target=_PLACE_OF_DOOR),
                )
                sandbox = await self._backend.create(Spec(repo=task.repo, limits=limits, mounts=mounts))
                try:
                    words = (sys.executable, "-I", "-c", _RELAY, json.dumps(order))
                    result = await sandbox.exec(shlex.join(words), timeout_s=config.wall_s)
                    left = await changes_left(sandbox)
                finally:
                    await sandbox.destroy()
                return result, left, refused(sandbox)

    def _outcome(self, session_id: str, door: ModelDoor, result: ExecResult) -> Outcome:
        """Return how the session ended, as far as it can be seen from outside."""
        name, tail = self._config.harness, result.output.strip()[-_TAIL:]
        ending, reason = Ending.FINISHED, ""
        if door.failure is not None:
            ending, reason = Ending.INFRASTRUCTURE, door.failure
        elif not door.calls:
            ending = Ending.INFRASTRUCTURE
            reason = f"{name} called no model (exit status {result.exit_code}); its last words: {tail}"
        elif door.refused:
            ending, reason = Ending.TURN_LIMIT, f"stopped after {door.calls} model calls"
        elif result.timed_out:
            ending, reason = Ending.TURN_LIMIT, f"stopped after {self._config.wall_s:.0f} s"
        elif result.exit_code:
            ending, reason = Ending.ABANDONED, f"{name} ended with status {result.exit_code}"
        return Outcome(
            session_id=session_id,
            ending=ending,
            final_message=tail if ending is Ending.FINISHED else "",
            turns=door.calls,
            calls=(),
            reason=reason,
        )

    async def _ended(self, outcome: Outcome, http: aiohttp.ClientSession) -> Outcome:
        """Post the ending of the session; an ending that cannot be recorded makes it INFRASTRUCTURE."""
        if not outcome.turns:
            return outcome  # the gateway knows no such session
        client = GatewayClient(self._url, self._key, http=http)
        signal = Signal(
            session_id=outcome.session_id,
            kind=SignalKind.ENDING,
            value=outcome.ending.value,
            observed_at=time.time(),
            id=f"{outcome.session_id}/ending",
        )
        try:
            await client.signal(signal)
        except (GatewayUnavailable, GatewayRefused) as error:
            return Outcome(
                session_id=outcome.session_id,
                ending=Ending.INFRASTRUCTURE,
                final_message="",
                turns=outcome.turns,
                calls=(),
                reason=f"the ending could not be recorded: {error}",
            )
        return outcome
