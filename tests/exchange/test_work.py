"""One session, one exam and one reward by hand, each the same as in a run.

Covers exchange/work.py.
"""

from pathlib import Path

import pytest
from tests.harness.conftest import gateway, store
from tests.store.builders import session, turn

import ostinato as o
from ostinato.gateway.access.keys import hash_key
from ostinato.harness.agent import HarnessConfig
from ostinato.rewards.live.definition import LIVE
from ostinato.store import Store
from ostinato.tasks.pebble import generate, provide
from ostinato.types import Source

__all__ = ["gateway", "store"]
PROCESS = o.SandboxConfig(backend="process")


@pytest.fixture
def script() -> list[str]:
    return ["I found nothing."]


async def test_a_task_is_attempted_and_verified(gateway: str, store: Store, tmp_path: Path) -> None:
    store.add_key(hash_key("key"), "operator", "admin")
    pebble = generate("fix", "train", 7)
    task = provide(pebble, tmp_path / "task")
    limits = HarnessConfig(profile="core", max_context=20_000)
    found = await o.attempt(task, gateway, key="key", limits=limits, sandbox=PROCESS)
    assert not found.solved and found.outcome.final_message == "I found nothing."
    recorded = o.open(tmp_path / "store.db").session(found.session_id)
    assert (recorded.source, recorded.task_id) == (Source.BENCH, task.id)
    nothing = await o.verify(task, {}, sandbox=PROCESS)
    (change,) = pebble.changes
    text = (task.repo / change.path).read_text().replace(change.old, change.new)
    fixed = await o.verify(task, {change.path: text.encode()}, sandbox=PROCESS)
    assert (nothing.passed, fixed.passed) == (False, True)


def test_a_session_is_scored_as_the_command_does(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    kept = o.Signal(session_id="s1", kind=o.SignalKind.EDIT_KEPT, value=1.0, observed_at=3.0)
    store.record([turn(0)], [kept], [session()])
    expected = LIVE.score("s1", store.turns("s1"), [kept], as_of=9.0)
    assert o.score(o.open(tmp_path / "store.db"), "s1", as_of=9.0) == expected
    assert store.rewards("s1") == []
    store.close()
