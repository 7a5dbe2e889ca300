"""An engine that somebody else started: sessions that `ostinato serve --engine` recorded are learnt from, and
the trained version reaches it.

Covers loop/resources.py, loop/folder.py and loop/config.py, where a run starts no engine.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz.foreign import checkpoint
from fuzz.little_vllm import little_vllm
from tests.loop.serving.test_serve_model import chat, serving
from tests.loop.test_people_cycle import SESSIONS, turned, work
from tests.store.builders import session

from ostinato.config import ConfigError, read
from ostinato.deploy.control import CycleWordError, say
from ostinato.loop.config import CAN_DIFFER, RunConfig, ScheduleConfig, check
from ostinato.loop.folder import RunError, open_run, owned
from ostinato.loop.placement.config import EnginesConfig
from ostinato.loop.resources import ForeignEngines
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction
from ostinato.types import Decision, Source

CONTEXT = 3072


def settings(model: Path, address: str, **engine: Any) -> dict[str, Any]:
    return {
        "sandbox": {"backend": "process"},
        "model": {"path": str(model)},
        "engine": {"context": CONTEXT, **({"url": [address]} | engine)},
        "trainer": {"kind": "fsdp", "lora_rank": 4},
        "tasks": {"held_out": {"seeds": 80}},
        "harness": {"profile": "short", "max_context": 2048, "max_turns": 1, "max_tokens": 4},
        "bench": {"passes": 1, "at_once": 16},
        "live": {
            "developers": "people",
            "sessions": SESSIONS,
            "ab_sessions": 4,
            "canary_sessions": 0,
            "shadow_requests": 2,
            "versions": 1,
            "learning_rate": 1e-2,
            "gate_margin": 1.0,
        },
        "fidelity": {"wanted": dict.fromkeys(CAN_DIFFER, "the sessions of this test are those of a script")},
        "schedule": {"stages": ["after"]},
    }


async def promoted(store: Store) -> None:
    """Say as a person that the candidate is promoted, as soon as it meets people."""
    while True:
        try:
            say(store, CycleAction.PROMOTE, "ada", "the test")
            return
        except CycleWordError:  # no trial is under way yet
            await asyncio.sleep(0.1)


@pytest.mark.deep
async def test_a_cycle_learns_from_what_serve_recorded_before_a_foreign_engine(tmp_path: Path) -> None:
    """The trained version is an adapter there, and what people ask next is answered by it."""
    model, folder = checkpoint(tmp_path / "llama", "Llama"), tmp_path / "team"
    async with little_vllm(model, CONTEXT) as (url, little):
        config = read(RunConfig, settings(model, url), "the test")
        async with serving(folder, "--engine", url, "--model", str(model)) as (_, printed):
            store = Store.open(folder / "store.db")
            store.accounts.set_consent(user="local", granted=True, by="local")
            await work(printed["OSTINATO_URL"], printed["OSTINATO_KEY"], tmp_path / "tasks", config)
        recorded = store.sessions(source=Source.LIVE)
        assert set(little.asked) == {"little"} and len(recorded) == SESSIONS
        cycling = replace(config, schedule=ScheduleConfig(stages=("after", "cycle")))
        result, _ = await asyncio.gather(turned(folder, cycling), promoted(store))
        assert result.turned is not None
        (cycle,) = result.turned.cycles
        assert cycle.collected.sessions == cycle.collected.offered == SESSIONS and cycle.candidate == 1
        assert cycle.decision is Decision.ADMIT and result.turned.served.version == 1
        assert list(little.roots) == ["team@1"]
        async with serving(folder) as (_, printed):
            await chat(printed)
        assert little.asked[-1] == "team@1"
        (new,) = {s.id for s in store.sessions(source=Source.LIVE)} - {s.id for s in recorded}
        assert {v for turn in store.turns(new) for v in turn.completion.versions} == {1}
        store.close()


@pytest.mark.parametrize(
    ("engine", "trainer", "why"),
    [
        ({}, {}, r"engine\.release is adapter, and trainer\.kind local, lora_rank 0"),
        ({}, {"kind": "fsdp", "lora_rank": 4, "served": "bfloat16"}, "served bfloat16: train adapters"),
        ({"backend": "vllm"}, {}, r"engine\.backend is of engines that the run starts"),
        (
            {"url": [], "release": "hook"},
            {},
            r"engine\.release is of engines that are there, and no",
        ),
        ({"release": "hook"}, {}, r"engine\.on_release, its command, go together"),
        ({"release": "weights"}, {}, r"engine\.url has 1: a cycle needs 2"),
        (
            {"url": ["gpu:8000"], "release": "weights"},
            {},
            r"engine\.url holds 'gpu:8000': write http://HOST:PORT",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: Path, engine: dict[str, Any], trainer: dict[str, Any], why: str
) -> None:
    given = settings(tmp_path, "http://gpu:8000", **engine)
    given |= {"trainer": trainer, "schedule": {"stages": ["after", "cycle"]}}
    with pytest.raises(ConfigError, match=why):
        check(read(RunConfig, given, "the test"))


async def test_an_engine_that_serves_one_version_at_a_time_is_lent_to_one_arm() -> None:
    config = EnginesConfig(url=("http://a", "http://b"), release="weights")
    lent, taken = ForeignEngines(config), list[tuple[str, ...]]()
    released = asyncio.Event()

    async def arm() -> None:
        async with lent.some() as urls:
            taken.append(urls)
            await released.wait()

    arms = [asyncio.create_task(arm()) for _ in range(3)]
    while len(taken) < 2:
        await asyncio.sleep(0)
    assert taken == [("http://a",), ("http://b",)]
    released.set()
    await asyncio.gather(*arms)
    assert len(taken) == 3
    async with ForeignEngines(replace(config, release="adapter")).some() as urls:
        assert urls == ("http://a", "http://b"), "adapters lie beside each other"


async def test_a_record_that_serve_made_becomes_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "serve"
    with owned(folder, "serve") as run:
        store = run.open_store()
        store.start_session(session("s", source=Source.LIVE))
        store.close()
        run.logs.mkdir()
    with owned(folder, "run") as run:
        opened = open_run(run, RunConfig())
        assert "with the sessions that were recorded there" in opened.notice and not opened.resumed
        store = run.open_store()
        assert [each.id for each in store.sessions()] == ["s"]
        store.close()
    (folder / "config.toml").unlink()
    (folder / "notes.txt").write_text("somebody's own")
    with owned(folder, "run") as run, pytest.raises(RunError, match="holds something else than a run"):
        open_run(run, RunConfig())
