"""One person's sessions with a real client go the whole way: edit, git commit, survival, reward, sample,
version, verdict, lineage; and one becomes a task. Only the model is scripted, and time: nobody waits for the
day to be over.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.clients.conftest import AFTER, BEFORE, Door
from tests.clients.drive import CLIENTS, KEY, TASK, Client, Desk, Start, run

from ostinato.deploy.lineage import lineage, tree
from ostinato.edits.capture import starts
from ostinato.edits.capture.repository_paths import state_of
from ostinato.edits.install.claude import install_claude
from ostinato.edits.install.git_hooks import find, install, uninstall
from ostinato.harness.session_log import Sessions
from ostinato.loop.live_config import CHALLENGER, CHAMPION, LiveConfig
from ostinato.loop.trial import judged, planned
from ostinato.mining.mine import Miner, MiningConfig
from ostinato.mining.sessions import SessionMiner, outside_sessions
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout.collect import Collector
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.store import Objects, Store
from ostinato.tasks.base import load_task
from ostinato.train.config import LearnerConfig
from ostinato.train.journal import Journal
from ostinato.train.learner import Learner
from ostinato.train.local import DecoderModel
from ostinato.train.trainer import ChainTrainer
from ostinato.types import Arm, Decision, Session, SignalKind

pytestmark = [pytest.mark.clients, pytest.mark.slow]
CLAUDE = next(client for client in CLIENTS if client.name == "claude-code")
PATIENCE_S = 120
QUIET_S = 5.0
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
SERVED = 3
"""The version that the scripted model is served as."""


def git(desk: Desk, environment: Mapping[str, str], *words: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    command = ["git", *identity, "-C", str(desk.repo), *words]
    subprocess.run(command, check=True, capture_output=True, env=dict(environment))


async def until(store: Store, kind: SignalKind, count: int) -> None:
    """Wait until so many sessions have a signal of that kind."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ids = [session.id for session in store.sessions()]
            if sum(any(s.kind is kind for s in some) for some in store.signals_of(ids).values()) >= count:
                return
            await asyncio.sleep(0.2)


async def ended(store: Store, count: int) -> list[Session]:
    async with asyncio.timeout(PATIENCE_S):
        while len(sessions := store.sessions(ended=True)) < count:
            await asyncio.sleep(0.2)
    return sessions


async def quiet(store: Store) -> None:
    """Wait until nothing more is heard of any session, since what comes later sends it back to be scored."""
    heard, since = -1, time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        while time.monotonic() - since < QUIET_S:
            ids = [session.id for session in store.sessions()]
            now = sum(map(len, store.signals_of(ids).values())) + sum(len(store.turns(id)) for id in ids)
            if now != heard:
                heard, since = now, time.monotonic()
            await asyncio.sleep(0.2)


def learnt(store: Store, checkpoint: Path, folder: Path) -> int:
    """Train one version of a tiny decoder on what was collected, and return its number."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = ModelConfig(
        vocab_size=Tokenizer.load(checkpoint).vocab_size,
        hidden_size=16,
        layers=1,
        heads=2,
        kv_heads=2,
        head_dim=8,
        intermediate_size=32,
        max_positions=1 << 17,  # the prompt of Claude Code alone is some 40,000 of these tokens
    )
    config = LearnerConfig(staleness=99)
    model = DecoderModel(Decoder(shape), folder)
    trainer = ChainTrainer(model, Objects.open(folder / "objects"), config)
    learner = Learner(trainer, store, Journal(folder / "learner.jsonl"), config)
    learner.start(SERVED)
    return learner.advance(2)


async def test_sessions_of_a_real_client_go_from_use_to_verdict(
    door: Door, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if CLAUDE.missing is not None:
        pytest.skip(CLAUDE.missing)
    store, desk = door.store, door.desk
    reports = {"OSTINATO_URL": desk.gateway, "OSTINATO_KEY": KEY}
    client = replace(CLAUDE, start=_reporting(CLAUDE, reports))
    person = {"HOME": str(desk.home), "PATH": "/usr/local/bin:/usr/bin:/bin", **reports}
    monkeypatch.setenv("HOME", str(desk.home))
    for name, value in reports.items():
        monkeypatch.setenv(name, value)
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    (arm,) = store.arms()
    champion = Arm(name=CHAMPION, version=SERVED, share=1.0, engines=arm.engines)
    store.set_arms([champion])
    repo = find(desk.repo)
    install(repo)
    install_claude(desk.repo, shared=False)
    try:
        # Ada throws the first edit away, and commits the second.
        await run(client, desk)
        assert (desk.repo / "calc.py").read_text() == AFTER
        git(desk, person, "checkout", "calc.py")
        assert (desk.repo / "calc.py").read_text() == BEFORE
        await ended(store, 1)
        await run(client, desk)
        git(desk, person, "commit", "-qam", "add adds")
        await until(store, SignalKind.EDIT_COMMITTED, 1)
        await until(store, SignalKind.EDIT_REVERTED, 1)
        await until(store, SignalKind.EDIT_KEPT, 1)
        first, second = await ended(store, 2)
        uninstall(repo)  # its reporter would tell again after 30 and 120 seconds how the edits fare
        await quiet(store)

        later = time.time() + 2 * LIVE.mature_s
        harvest = Collector(store, LIVE).harvest([CHAMPION], as_of=later)
        assert (harvest.sessions, harvest.offered, harvest.censored) == (2, 2, 0)
        worth = [store.rewards(session.id)[-1].total for session in (first, second)]
        assert worth[0] < 0 < worth[1]
        version = await asyncio.to_thread(learnt, store, checkpoint, tmp_path / "trained")
        install(repo)

        # The candidate serves her next session; one is too few for a verdict but to hold.
        began = time.time()
        trial = planned(LiveConfig(ab_sessions=2), "trial-1", 0.02).trial
        challenger = replace(champion, name=CHALLENGER, version=version, experiment=trial.experiment)
        store.set_arms([replace(champion, share=0.0, experiment=trial.experiment), challenger])
        git(desk, person, "revert", "--no-edit", "HEAD")
        await run(client, desk)
        await ended(store, 3)
        later = time.time() + 2 * LIVE.mature_s
        _, verdict = judged(store, LIVE, version, trial, since=began, habits={}, as_of=later)
        store.add_verdict(verdict)
    finally:
        uninstall(repo)
    assert verdict.decision is Decision.HOLD
    shown = tree(lineage(store, version))
    assert "trained on 2 sessions in 2 groups" in shown and f"verdict {verdict.id[:8]}: hold" in shown
    assert "edit_reverted=1" in shown and "edit_committed=1" in shown and LIVE.hash() in shown
    assert {turn.arm for turn in store.turns(store.sessions()[-1].id)} == {CHALLENGER}


async def test_a_session_of_a_real_client_becomes_a_task(
    door: Door, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hooks keep the tree before its first edit, and the gateway the words of its user."""
    if CLAUDE.missing is not None:
        pytest.skip(CLAUDE.missing)
    store, desk = door.store, door.desk
    monkeypatch.setenv("HOME", str(desk.home))
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    repo = find(desk.repo)
    install(repo, git_hooks=False)
    install_claude(desk.repo, shared=False)
    try:
        await run(CLAUDE, desk)
        folder = starts.folder_of(state_of(repo), store.sessions()[0].id)
        async with asyncio.timeout(PATIENCE_S):
            while not starts.edited(folder):  # the reporter in the background writes it
                await asyncio.sleep(0.2)
    finally:
        uninstall(repo)
    (desk.repo / "test_calc.py").write_text(TEST)
    for words in (["add", "calc.py", "test_calc.py"], ["commit", "-qm", "add adds"]):
        git(desk, {"HOME": str(desk.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}, *words)
    backend, out = ProcessBackend(), tmp_path / "mined"
    out.mkdir()
    readings = outside_sessions(desk.repo, store, Tokenizer.load(checkpoint))
    miner, logs = Miner(backend, out, MiningConfig()), Sessions(directory=tmp_path / "none" / "sessions")
    try:
        tasks = await SessionMiner(backend, miner, store, logs, desk.repo, outside=readings).mine()
    finally:
        await backend.aclose()
    assert [task.instruction for task in tasks] == [TASK], miner.tally
    before = load_task(tasks[0].directory).repo
    assert (before / "calc.py").read_text() == BEFORE and not (before / "test_calc.py").exists()


def _reporting(client: Client, reports: Mapping[str, str]) -> Callable[[Desk], Start]:
    """Return the start of a client whose hooks know the gateway."""

    def start(desk: Desk) -> Start:
        begun = client.start(desk)
        return replace(begun, environment={**begun.environment, **reports})

    return start
