"""One agent on one task in one sandbox, verified: what every practice, bench and simulated live session is.

::

    Task ──► sandbox opened on its repository ──► Agent.run ──► changes ──► Verifier ──► Episode
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.conversation import Outcome
from ostinato.harness.permissions import ALLOW_ALL, Permissions
from ostinato.harness.profiles import profile
from ostinato.harness.users import Answering, Permitting
from ostinato.sandbox.base import Backend, SandboxError, Spec
from ostinato.sandbox.verify import Verification, Verifier
from ostinato.tasks.grade import answered
from ostinato.types import Ending, Signal, SignalKind, Source, Task, new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What came of one session on one task.

    `solved`: the hidden tests pass, protected files are untouched and, where a question was put, the answer
    is right. `void`: why it must not be scored (something of ours failed), None when it may.
    """

    task: Task
    session_id: str
    outcome: Outcome
    changed: bool
    solved: bool
    tampered: bool
    void: str | None

    def signals(self) -> list[Signal]:
        """What the verifier saw, as facts about the session; none for a void one."""
        if self.void is not None:
            return []
        facts = {SignalKind.HIDDEN_TESTS: self.solved, SignalKind.TAMPERED: self.tampered}
        now = time.time()
        return [
            Signal(session_id=self.session_id, kind=kind, value=float(fact), observed_at=now)
            for kind, fact in facts.items()
        ]


class CardUser:
    """Answers every question from the task's intent card, as a user who knows what they want.

    Without a card the repository already says all there is to say.
    """

    def __init__(self, task: Task) -> None:
        self._reply: str = task.metadata.get("intent", {}).get("reply", "see the tests")

    async def answer(self, question: str) -> str:
        return self._reply


class EpisodeRunner:
    """Runs episodes; any number at once on one runner."""

    def __init__(
        self,
        client: GatewayClient,
        backend: Backend,
        verifier: Verifier,
        config: HarnessConfig,
        permissions: Permissions = ALLOW_ALL,
    ) -> None:
        self._client = client
        self._backend = backend
        self._verifier = verifier
        self._config = config
        self._permissions = permissions
        self.harness = profile(config.profile).hash
        """Of what the model is told in every episode."""

    async def run(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        client: GatewayClient | None = None,
    ) -> Episode:
        """One session and its verification; `client` for a session that belongs to another user's key."""
        session_id = new_id()
        try:
            outcome, changes = await self.attempt(
                task, user, source=source, client=client, session_id=session_id
            )
        except SandboxError as error:
            return self._void(task, session_id, f"the sandbox failed: {error}")
        if outcome.ending is Ending.INFRASTRUCTURE:
            return self._void(task, session_id, outcome.reason)
        return await self._verified(task, outcome, changes)

    async def attempt(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        session_id: str,
        client: GatewayClient | None = None,
    ) -> tuple[Outcome, Mapping[str, bytes | None]]:
        """The session alone: how it ended and what it changed. Raises SandboxError."""
        sandbox = await self._backend.create(Spec(repo=task.repo))
        try:
            agent = Agent(
                client or self._client,
                sandbox,
                Permitting(user),
                self._config,
                permissions=self._permissions,
            )
            outcome = await agent.run(task.instruction, session_id=session_id, source=source, task_id=task.id)
            return outcome, await sandbox.changes()
        finally:
            await sandbox.destroy()

    async def _verified(self, task: Task, outcome: Outcome, changes: Mapping[str, bytes | None]) -> Episode:
        verification: Verification = await self._verifier.verify(task, changes)
        answer_right = "answer" not in task.metadata or answered(task, outcome.final_message)
        tampered = bool(verification.tampered)
        return Episode(
            task=task,
            session_id=outcome.session_id,
            outcome=outcome,
            changed=bool(changes),
            solved=verification.passed and answer_right and not tampered,
            tampered=tampered,
            void=verification.void,
        )

    def _void(self, task: Task, session_id: str, why: str) -> Episode:
        return Episode(
            task=task,
            session_id=session_id,
            outcome=Outcome(
                session_id=session_id, ending=Ending.INFRASTRUCTURE, final_message="", turns=0, calls=()
            ),
            changed=False,
            solved=False,
            tampered=False,
            void=why,
        )
