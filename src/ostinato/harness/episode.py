"""The episode: one agent on one task in one sandbox, verified. Practice, bench and simulated live sessions
are such.

::

    Task ──► sandbox opened on its repository ──► Agent.run ──► changes ──► Verifier ──► Episode
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.conversation import Conversation, Outcome
from ostinato.harness.errors import ProviderError
from ostinato.harness.permissions.rules import ALLOW_ALL, Permissions
from ostinato.harness.profiles.profile import profile
from ostinato.harness.providers.base import Hit, Providers, Search
from ostinato.harness.providers.search import SearchAt
from ostinato.harness.users import Answering, Permitting
from ostinato.sandbox.base import Backend, ChangesError, EndedWithinError, LetOut, Sandbox, SandboxError, Spec
from ostinato.sandbox.exam.task_needs import image_of, limits_of
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.tasks.diff import beyond, unified
from ostinato.tasks.grade import answered, contradicts, reported
from ostinato.types import Ending, Grade, Signal, SignalKind, Source, Task, new_id

Left = Mapping[str, bytes | None] | None
"""The files that a session changed; None when the session left changes that cannot be carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The result of one session on one task.

    `solved`: the hidden tests pass, protected files are untouched and, where a question was put, the answer
    is right. `void` is the reason why it must not be scored, since something of ours failed; None when it may
    be.
    """

    task: Task
    session_id: str
    outcome: Outcome
    changed: bool
    solved: bool
    tampered: bool
    void: str | None
    grade: Grade = Grade.JUDGED
    """The grade of the verdict on the hidden tests."""
    changes: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
    """The files that the session changed or deleted."""

    def signals(self) -> list[Signal]:
        """Return the verifier's findings as signals of the session; none for a void one.

        They have the same ids however often it is verified, so that they are recorded once.
        """
        if self.void is not None:
            return []
        facts: list[tuple[SignalKind, float | str]] = [
            (SignalKind.HIDDEN_TESTS, float(self.solved)),
            (SignalKind.TAMPERED, float(self.tampered)),
            (SignalKind.GRADE, self.grade.value),
            (SignalKind.PATCH, unified(self.task, self.changes)),
        ]
        if (lines := beyond(self.task, self.changes)) is not None:
            facts.append((SignalKind.BEYOND, float(lines)))
        if contradicts(self.task):
            facts.append((SignalKind.REPORTED, float(reported(self.task, self.outcome.final_message))))
        if self.outcome.refused:
            facts.append((SignalKind.NETWORK_REFUSED, float(self.outcome.refused)))
        facts += [(SignalKind.QUESTION_ANSWERED, float(needed)) for needed in self._questions()]
        now = time.time()
        return [
            Signal(
                session_id=self.session_id,
                kind=kind,
                value=fact,
                observed_at=now,
                id=f"{self.session_id}/{kind.value}/{i}",
            )
            for i, (kind, fact) in enumerate(facts)
        ]

    def _questions(self) -> list[bool]:
        """Return whether each question was needed: at most the first is; none where no card can tell."""
        decidable = self.task.metadata.get("intent", {}).get("decidable")
        asked = self.outcome.calls.count("ask_user") if decidable is not None else 0
        return [not decidable and i == 0 for i in range(asked)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The sessions sampled from one start, not yet verified: one, or the branches of a fork.

    >>> Sampled(trunk=None, ended=()).ended
    ()
    """

    trunk: str | None
    """The session of the turns that were shared before the fork; None where exactly one session ended."""
    ended: tuple[tuple[Outcome, Left], ...]
    """Each session's outcome, and the files that it changed."""


class CardUser:
    """A user who knows what they want: every answer comes from the task's intent card.

    Without a card the answer points to the tests, which say everything.
    """

    def __init__(self, task: Task) -> None:
        self._reply: str = task.metadata.get("intent", {}).get("reply", "see the tests")

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        return self._reply


class _Noted:
    """A search that remembers its failures, since a failing service is no fault of the model's."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.failure: str | None = None

    async def search(self, query: str, *, path: str | None, k: int) -> Sequence[Hit]:
        try:
            return await self._search.search(query, path=path, k=k)
        except ProviderError as error:
            self.failure = str(error)
            raise


class EpisodeRunner:
    """A runner of episodes; any number of them may run at once.

    `search` is the service behind `semantic_search`, over each sandbox's files. An episode in which it failed
    is void.
    """

    def __init__(
        self,
        client: GatewayClient,
        backend: Backend,
        verifier: Verifier,
        config: HarnessConfig,
        *,
        permissions: Permissions = ALLOW_ALL,
        search: SearchAt | None = None,
    ) -> None:
        self._search = search
        self._client = client
        self._backend = backend
        self._verifier = verifier
        self._config = config
        self._permissions = permissions
        self.harness = profile(config.profile).hash
        """The hash of the profile that every episode runs under."""

    async def run(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        client: GatewayClient | None = None,
        session_id: str | None = None,
    ) -> Episode:
        """Run one session and verify it.

        `client` serves a session that belongs to another user's key, `session_id` one whose id must be known
        before it begins.
        """
        session_id = session_id or new_id()
        try:
            outcome, changes = await self.attempt(
                task, user, source=source, client=client, session_id=session_id
            )
        except SandboxError as error:
            outcome, changes = failed(session_id, error), {}
        return await verified(self._verifier, task, outcome, changes)

    async def attempt(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        session_id: str,
        client: GatewayClient | None = None,
        seed: int | None = None,
        after: Callable[[Sandbox], Awaitable[None]] | None = None,
    ) -> tuple[Outcome, Left]:
        """Run the session alone and return its outcome and its changes; raises SandboxError.

        With `seed` the seeds of its turns are derived from it, and from nothing else.

        `after` gets the sandbox as the session left it, before it is destroyed, unless the session left
        nothing that can be looked at.
        """
        sandbox = await self._backend.create(_spec(task))
        try:
            agent, search = self._agent(sandbox, user, self._config, client)
            conversation = agent.converse(session_id, source=source, task_id=task.id, seed=seed)
            outcome = _blamed(await agent.prompt(conversation, task.instruction), search)
            outcome, left = await agent.end(conversation, outcome), await changes_left(sandbox)
            if after is not None and left is not None:
                await after(sandbox)
        finally:
            await sandbox.destroy()
        return replace(outcome, refused=refused(sandbox)), left

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
        """Run one session; with `branches` above 1 for `after` turns, then so many sessions from there.

        A branch that began full, without a turn, is no session; where all did, what they shared is the whole
        one. A sandbox that fails makes its sessions end as INFRASTRUCTURE.
        """
        try:
            if branches == 1:
                ended = await self.attempt(task, user, source=source, session_id=session_id, seed=seed)
                return Sampled(trunk=None, ended=(ended,))
            outcome, changes, forks = await self._until_fork(
                task, user, source=source, session_id=session_id, seed=seed, after=after, branches=branches
            )
        except SandboxError as error:
            return Sampled(trunk=None, ended=((failed(session_id, error), {}),))
        if not forks:
            return Sampled(trunk=None, ended=((outcome, changes),))
        grown = await asyncio.gather(*(self._branch(user, *fork) for fork in forks))
        before = outcome.refused
        whole = tuple(
            (replace(own, refused=own.refused + before), left)
            for (own, left), (_, conversation) in zip(grown, forks, strict=True)
            if conversation.last_turn is not None or own.ending is Ending.INFRASTRUCTURE
        )
        if not whole:
            return Sampled(trunk=None, ended=((replace(outcome, reason=grown[0][0].reason), grown[0][1]),))
        return Sampled(trunk=session_id, ended=whole)

    async def _until_fork(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        session_id: str,
        seed: int | None,
        after: int,
        branches: int,
    ) -> tuple[Outcome, Left, list[tuple[Sandbox, Conversation]]]:
        """Run the shared turns; there are no forks when the session ended before they were over."""
        sandbox = await self._backend.create(_spec(task))
        try:
            agent, search = self._agent(sandbox, user, replace(self._config, max_turns=after))
            conversation = agent.converse(session_id, source=source, task_id=task.id, seed=seed)
            outcome = _blamed(await agent.prompt(conversation, task.instruction), search)
            outcome = await agent.end(conversation, outcome)
            outcome = replace(outcome, refused=refused(sandbox))
            if outcome.ending is not Ending.TURN_LIMIT:
                return outcome, await changes_left(sandbox), []
            forks = await sandbox.fork(branches)
            grown = (
                conversation.branch(f"{session_id}-{i}", None if seed is None else seed + i + 1)
                for i in range(branches)
            )
            return outcome, {}, list(zip(forks, grown, strict=True))
        finally:
            await sandbox.destroy()

    async def _branch(
        self, user: Answering, sandbox: Sandbox, conversation: Conversation
    ) -> tuple[Outcome, Left]:
        try:
            return await self._go_on(user, sandbox, conversation)
        except SandboxError as error:
            return failed(conversation.session_id, error), {}

    async def _go_on(
        self, user: Answering, sandbox: Sandbox, conversation: Conversation
    ) -> tuple[Outcome, Left]:
        try:
            agent, search = self._agent(sandbox, user, self._config)
            outcome = _blamed(await agent.go_on(conversation), search)
            if conversation.last_turn is not None:  # else the gateway has not heard of it
                outcome = await agent.end(conversation, outcome)
            left = await changes_left(sandbox)
        finally:
            await sandbox.destroy()
        return replace(outcome, refused=refused(sandbox)), left

    def _agent(
        self, sandbox: Sandbox, user: Answering, config: HarnessConfig, client: GatewayClient | None = None
    ) -> tuple[Agent, _Noted | None]:
        """Return an agent and the search it uses, which remembers its failure."""
        search = _Noted(self._search.of(sandbox)) if self._search is not None else None
        agent = Agent(
            client or self._client,
            sandbox,
            Permitting(user),
            config,
            permissions=self._permissions,
            providers=Providers(search=search),
        )
        return agent, search


async def verified(verifier: Verifier, task: Task, outcome: Outcome, changes: Left) -> Episode:
    """Return the episode of a session that ended with these changes; they are judged by the hidden tests."""
    if outcome.ending is Ending.INFRASTRUCTURE:
        return _without_verdict(task, outcome, void=outcome.reason)
    if changes is None:
        return _without_verdict(task, outcome, void=None)
    verification: Verification = await verifier.verify(task, changes)
    if verification.void is not None:  # what the session left is here: another try costs no session
        verification = await verifier.verify(task, changes)
    answer_right = "answer" not in task.metadata or answered(task, outcome.final_message)
    tampered = bool(verification.tampered)
    solved = verification.passed and answer_right and not tampered
    return Episode(
        task=task,
        session_id=outcome.session_id,
        outcome=outcome,
        changed=bool(changes),
        changes=changes,
        solved=solved,
        tampered=tampered,
        grade=verification.grade,
        void=verification.void,
    )


def _without_verdict(task: Task, outcome: Outcome, *, void: str | None) -> Episode:
    """Return the void episode of a failure of ours, or the failed one of a session that left by its own
    fault nothing that can be judged.
    """
    return Episode(
        task=task,
        session_id=outcome.session_id,
        outcome=outcome,
        changed=void is None,
        solved=False,
        tampered=False,
        void=void,
    )


def failed(session_id: str, cause: SandboxError | str) -> Outcome:
    """Return the outcome of a session that a failure of ours spoilt."""
    reason = cause if isinstance(cause, str) else f"the sandbox failed: {cause}"
    return Outcome(
        session_id=session_id,
        ending=Ending.INFRASTRUCTURE,
        final_message="",
        turns=0,
        calls=(),
        reason=reason,
    )


async def changes_left(sandbox: Sandbox) -> Left:
    """Return what a session changed."""
    try:
        return await sandbox.changes()
    except (ChangesError, EndedWithinError):
        return None


def refused(sandbox: Sandbox) -> int:
    """Return the number of connections that a session was refused; complete once its sandbox is destroyed."""
    return sum(sandbox.refusals.values()) if isinstance(sandbox, LetOut) else 0


def _blamed(outcome: Outcome, search: _Noted | None) -> Outcome:
    """Return INFRASTRUCTURE in place of an ending that the search service had a part in."""
    if search is None or search.failure is None:
        return outcome
    return replace(outcome, ending=Ending.INFRASTRUCTURE, reason=search.failure)


def _spec(task: Task) -> Spec:
    return Spec(repo=task.repo, limits=limits_of(task), image=image_of(task))
