"""One slot: names and seed, the session within a time limit, what is kept of it, the verification."""

import asyncio
import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ostinato.harness.client import TokenCount
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import CardUser, Episode, Left, Sampled, failed
from ostinato.harness.users import Answering
from ostinato.rollout.config import PracticeConfig
from ostinato.rollout.timeouts import Examiner
from ostinato.types import Ending, Source, Task


def session_id(seed: int, prompt: str, number: int, attempt: int) -> str:
    """Return the session's id: that of the same place in the same attempt is always the same."""
    return _digest(f"session/{seed}/{prompt}/{number}/{attempt}", 16).hex()


def group_id(seed: int, prompt: str) -> str:
    return _digest(f"group/{seed}/{prompt}", 16).hex()


def sampling_seed(seed: int, prompt: str, number: int) -> int:
    """Return the seed of all tokens of a place in a group.

    The attempt is left out, so that a session that was cut off is sampled again as it would have been.
    """
    return int.from_bytes(_digest(f"seed/{seed}/{prompt}/{number}", 8)) >> 2


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


class SessionRunner(Protocol):
    """A runner of sessions, of our own agent or of an outside harness."""

    async def grow(
        self,
        task: Task,
        user: Answering,
        *,
        source: Source,
        session_id: str,
        seed: int | None,
        after: int,
        branches: int,
    ) -> Sampled:
        """Run one session, forked into `branches` after some turns where that is above 1."""
        ...

    async def verify(self, task: Task, outcome: Outcome, changes: Left) -> Episode:
        """Return the episode of a session that ended with these changes."""
        ...


@dataclass(frozen=True, slots=True)
class SlotWork:
    """Samples and verifies the sessions of slots, each within the time limit of the settings.

    Without an `examiner`, and for forks, of which a part may be sound, a session beyond it is void.
    """

    runner: SessionRunner
    config: PracticeConfig
    examiner: Examiner | None = None

    async def sample(self, task: Task, id: str, seed: int) -> Sampled:
        """Run the session `id`, forked where the settings say so."""
        config = self.config
        try:
            async with asyncio.timeout(config.session_s):
                return await self.runner.grow(
                    task,
                    CardUser(task),
                    source=Source.PRACTICE,
                    session_id=id,
                    seed=seed,
                    after=config.branch_after,
                    branches=config.branches,
                )
        except TimeoutError:
            why = f"the session did not end within {config.session_s:g} s"
            if self.examiner is None or config.branches > 1:
                return Sampled(trunk=None, ended=((failed(id, why), {}),))
            return Sampled(trunk=None, ended=((await self.examiner.outcome(task, id, why), None),))

    async def verify(self, task: Task, sampled: Sampled) -> list[Episode]:
        """Return the verified episode of each session."""
        episodes = (self._verify(task, outcome, left) for outcome, left in sampled.ended)
        return list(await asyncio.gather(*episodes))

    async def _verify(self, task: Task, outcome: Outcome, left: Left) -> Episode:
        try:
            async with asyncio.timeout(self.config.session_s):
                return await self.runner.verify(task, outcome, left)
        except TimeoutError:
            why = f"the verification did not end within {self.config.session_s:g} s"
            return await self.runner.verify(task, failed(outcome.session_id, why), {})


def names(id: str, branches: int) -> list[str]:
    """Return the ids of all sessions that a slot's session may consist of."""
    return [id, *(f"{id}-{i}" for i in range(branches) if branches > 1)]


def pack(sampled: Sampled) -> bytes:
    """Return what a verification needs of sessions that ended: how they ended, and the files they changed."""
    value = {
        "trunk": sampled.trunk,
        "ended": [{**_outcome(outcome), "changes": _changes(left)} for outcome, left in sampled.ended],
    }
    return zlib.compress(json.dumps(value).encode())


def unpack(kept: bytes) -> Sampled:
    """Return what `pack` kept."""
    value = json.loads(zlib.decompress(kept))
    return Sampled(
        trunk=value["trunk"],
        ended=tuple(
            (
                Outcome(
                    session_id=each["session_id"],
                    ending=Ending(each["ending"]),
                    final_message=each["final_message"],
                    turns=each["turns"],
                    calls=tuple(each["calls"]),
                    broken=each["broken"],
                    reason=each["reason"],
                    usage=TokenCount(**each["usage"]),
                ),
                _left(each["changes"]),
            )
            for each in value["ended"]
        ),
    )


def _outcome(outcome: Outcome) -> dict[str, object]:
    usage = outcome.usage
    return {
        "session_id": outcome.session_id,
        "ending": outcome.ending.value,
        "final_message": outcome.final_message,
        "turns": outcome.turns,
        "calls": outcome.calls,
        "broken": outcome.broken,
        "reason": outcome.reason,
        "usage": {"prompt": usage.prompt, "completion": usage.completion, "reasoning": usage.reasoning},
    }


def _changes(left: Left) -> dict[str, str | None] | None:
    if left is None:
        return None
    return {
        path: None if content is None else base64.b64encode(content).decode()
        for path, content in left.items()
    }


def _left(changes: dict[str, str | None] | None) -> Left:
    if changes is None:
        return None
    return {path: None if text is None else base64.b64decode(text) for path, text in changes.items()}


def effort(sampled: Sequence[Outcome]) -> tuple[int, int]:
    """Return the turns and the thinking tokens of the sessions of a slot, on average, rounded."""
    turns = sum(outcome.turns for outcome in sampled)
    thinking = sum(outcome.usage.reasoning or 0 for outcome in sampled)
    return round(turns / len(sampled)), round(thinking / len(sampled))
