"""Follow-ups of people are read before a collection; what simulated developers say is not."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rewards.follow_ups.test_read import TOKENIZER, said
from tests.store.builders import session

from ostinato.loop.config import RunConfig
from ostinato.loop.run import START, Run
from ostinato.loop.stages.follow_ups import read_follow_ups
from ostinato.store import Store


@pytest.mark.parametrize(
    ("developers", "consent", "read"), [("people", True, 1), ("people", False, 0), (80, True, 0)]
)
async def test_only_people_who_agreed_are_read(
    tmp_path: Path, developers: Any, consent: bool, read: int
) -> None:
    run = Run(directory=tmp_path)
    TOKENIZER.save(run.checkpoint(START))
    store = Store.open(tmp_path / "store.db")
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    turns = [said(0, "fix it"), said(1, "fix it", "done", "you broke CI")]
    store.record(turns, (), [session("s", user="ada", consent=consent)])
    config, told = RunConfig(), list[str]()
    resources: Any = SimpleNamespace(
        config=replace(config, live=replace(config.live, developers=developers)),
        run=run,
        store=store,
        show=SimpleNamespace(say=told.append),
    )
    await read_follow_ups(resources, store.sessions())
    assert len(store.signals("s")) == len(told) == read
    store.close()
