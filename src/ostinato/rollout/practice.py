"""Practice: whole groups of sessions on one prompt each, scored and offered to the ledger.

Invariants: a prompt is reserved before its first session and never again; a group is offered once, whole; a
prompt of which no group comes is dropped with its reason; every turn of every session ends in exactly one
State. A void session leaves its group, it is never a reward of zero.

::

    problem ─► reserve ─► G sessions at once ─► verify ─► reward − mean of the others ─► Ledger.offer

With `branches`, each of the G is forked after some turns: see `train.advantages.tree_advantages`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ostinato.harness.episode import CardUser, Episode, EpisodeRunner, Tree
from ostinato.harness.outside.config import OutsideConfig
from ostinato.harness.outside.runner import OutsideRunner
from ostinato.rewards.definition import Definition
from ostinato.rollout.credit import credit_group, samples
from ostinato.store import Store
from ostinato.store.ledger.ledger import Ledger
from ostinato.tasks.source import Problem
from ostinato.types import Group, Sample, Source, State, Task, new_id

log = logging.getLogger(__name__)
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeConfig:
    """The settings of sampling."""

    group_size: int = 8
    groups_at_once: int = 12
    ready_ahead: int = 12
    """No new group starts while this many wait for the trainer, since a group that waits grows stale."""
    branches: int = 1
    """The number of branches that a session is forked into, sandbox and all; 1 does not fork."""
    branch_after: int = 1
    """Turns before the fork. A session that ends sooner is not forked."""
    reward: Path | None = None
    """A TOML file with the definition of practice's reward; none takes the one that ships."""
    outside: OutsideConfig = field(default_factory=OutsideConfig)
    """Somebody else's harness, which practises in place of our own."""

    def __post_init__(self) -> None:
        if self.branches < 1 or self.branch_after < 1:
            raise ValueError(
                f"practice: branches {self.branches} and branch_after {self.branch_after} are 1 at least"
            )
        if self.outside.harness and self.branches > 1:
            raise ValueError(
                f"practice: {self.outside.harness} cannot be forked: let branches be 1, not {self.branches}"
            )


@dataclass(slots=True)
class Progress:
    """Running totals, for a display."""

    groups: int = 0
    sessions: int = 0
    solved: int = 0
    void: int = 0
    untrainable: int = 0
    recent: list[float] = field(default_factory=list)


class Practice:
    """The sampler of practice: it keeps groups in flight until it is stopped, and lets those end."""

    def __init__(
        self,
        runner: EpisodeRunner | OutsideRunner,
        store: Store,
        definition: Definition,
        directory: Path,
        config: PracticeConfig,
    ) -> None:
        self._runner = runner
        self._store = store
        self._ledger = Ledger(store)
        self._definition = definition
        self._directory = directory
        self._config = config
        self.progress = Progress()

    async def run(self, problems: Iterator[Problem], stop: Callable[[], bool]) -> None:
        """Sample from `problems` until `stop()`; return when no session is in flight."""
        workers = (self._worker(problems, stop) for _ in range(self._config.groups_at_once))
        await asyncio.gather(*workers)

    async def _worker(self, problems: Iterator[Problem], stop: Callable[[], bool]) -> None:
        while not stop():
            if self._ledger.ready(0) >= self._config.ready_ahead:
                await asyncio.sleep(POLL_S)
                continue
            problem = next(problems)
            if self._ledger.reserve(problem.key):
                await self._group(problem)

    async def _group(self, problem: Problem) -> None:
        task = problem.provide(self._directory)
        trees = await asyncio.gather(*(self._tree(task) for _ in range(self._config.group_size)))
        scored = [kept for tree in trees if (kept := self._without_void(tree)).branches]
        if not scored:
            self._ledger.drop(problem.key, "every session was void")
        elif not self._offer(problem, scored):
            self._ledger.drop(problem.key, "no session could be trained on")
        self._count([episode for tree in trees for episode in tree.branches])

    async def _tree(self, task: Task) -> Tree:
        user, config = CardUser(task), self._config
        if isinstance(self._runner, OutsideRunner) or config.branches == 1:
            episode = await self._runner.run(task, user, source=Source.PRACTICE)
            return Tree(trunk=None, branches=(episode,))
        return await self._runner.grow(
            task, user, source=Source.PRACTICE, after=config.branch_after, branches=config.branches
        )

    def _without_void(self, tree: Tree) -> Tree:
        """Account void branches and drop them; a trunk without any branch left is void as well."""
        self._void([episode for episode in tree.branches if episode.void is not None])
        kept = tuple(episode for episode in tree.branches if episode.void is None)
        if not kept and tree.trunk is not None:
            self._ledger.account_sessions([tree.trunk], State.VOID)
        return Tree(trunk=tree.trunk, branches=kept)

    def _void(self, episodes: list[Episode]) -> None:
        for episode in episodes:
            log.warning("void session %s on %s: %s", episode.session_id, episode.task.id, episode.void)
        self._ledger.account_sessions([episode.session_id for episode in episodes], State.VOID)

    def _offer(self, problem: Problem, trees: list[Tree]) -> bool:
        """Score the sessions and offer their samples; return False when there is no sample."""
        episodes = [episode for tree in trees for episode in tree.branches]
        self._store.record((), [signal for episode in episodes for signal in episode.signals()])
        credited, rewards = credit_group(self._store, self._definition, trees)
        rows: list[Sample] = []
        for each in credited:
            rows += (own := samples(self._ledger, each))
            self.progress.untrainable += not own
        if not rows:
            return False
        group = Group(
            id=new_id(), prompt=problem.key, samples=tuple(rows), rewards=rewards, kind=problem.kind
        )
        return self._ledger.offer(group)

    def _count(self, episodes: list[Episode]) -> None:
        self.progress.groups += 1
        self.progress.sessions += len(episodes)
        self.progress.void += sum(episode.void is not None for episode in episodes)
        self.progress.solved += sum(episode.solved for episode in episodes)
        self.progress.recent = [*self.progress.recent[-39:], sum(e.solved for e in episodes) / len(episodes)]
