"""One session, one exam, one reward by hand: a notebook asks the rooms that do it in a run."""

import time
from collections.abc import Mapping
from pathlib import Path

from ostinato.exchange.record import OpenRecord
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.client import GatewayClient
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.rewards.live.definition import LIVE, read_definition
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.config import SandboxConfig
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.types import Reward, Session, Source, Task

LIMITS, SANDBOX = HarnessConfig(), SandboxConfig()


async def attempt(
    task: Task,
    gateway: str,
    *,
    key: str,
    limits: HarnessConfig = LIMITS,
    sandbox: SandboxConfig = SANDBOX,
) -> Episode:
    """Let the agent of a profile, which `limits` names, work on a task in a sandbox, and verify what it left.

    The gateway records the session as one of a benchmark, which is never trained on; `key` needs the role
    `admin`, as every session that is no person's. Raises ProviderError, SandboxError.
    """
    backend = await choose_backend(sandbox)
    try:
        async with GatewayClient(gateway, key) as client:
            runner = EpisodeRunner(client, backend, Verifier(backend), limits)
            return await runner.run(task, CardUser(task), source=Source.BENCH)
    finally:
        await backend.aclose()


async def verify(
    task: Task, changes: Mapping[str, bytes | None], *, sandbox: SandboxConfig = SANDBOX
) -> Verification:
    """Judge changes by a task's hidden tests: path to content, None for a file that is deleted."""
    backend = await choose_backend(sandbox)
    try:
        return await Verifier(backend).verify(task, changes)
    finally:
        await backend.aclose()


def score(
    run: OpenRecord, of: Session | str, *, definition: Path | None = None, as_of: float | None = None
) -> Reward:
    """Return what a session is worth by a live definition, or by the one that ships, at `as_of` or now.

    It is what `ostinato rewards explain` shows; nothing is recorded. Raises DefinitionError,
    SignalValueError, VoidSessionError.
    """
    session = run.session(of) if isinstance(of, str) else of
    live = LIVE if definition is None else read_definition(definition)
    turns, signals = run.store.turns(session.id), run.store.signals(session.id)
    return live.score(session.id, turns, signals, as_of=time.time() if as_of is None else as_of)
