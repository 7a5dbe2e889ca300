"""The loop waits for real sessions: enough of them, and then for their attribution windows.

Covers loop/base.py, whose protocol `PeopleTraffic` fills in.
"""

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.rewards.follow_ups.test_read import TOKENIZER
from tests.store.builders import session, turn

from ostinato.loop.people import PeopleTraffic, recording_notice
from ostinato.loop.show import Show
from ostinato.rewards.live.definition import LIVE
from ostinato.store import Store
from ostinato.types import Ending, Source
from ostinato_lab.week.clock import run_virtually


async def test_a_period_ends_when_enough_sessions_have_ended_since_it_began(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    now = 0.0
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    lines = io.StringIO()
    show = Show(Console(file=lines, width=200))
    traffic = PeopleTraffic(store, TOKENIZER, show, now=lambda: now, poll_s=0.001)

    def ended(id: str, at: float, source: Source = Source.LIVE, **other: Any) -> None:
        told = {
            "started_at": at,
            "source": source,
            "arm": "champion",
            "ending": Ending.FINISHED,
            "consent": True,
            **other,
        }
        store.record([turn(0, id)], [], [replace(session(id), **told)])

    waiting = asyncio.create_task(traffic.arrive("live", since=100.0, sessions=2))
    ended("too-early", 99.0)
    ended("practice", 101.0, Source.PRACTICE)
    ended("of-the-hold-out", 101.0, arm="holdout-first")
    ended("our-failure", 101.0, ending=Ending.INFRASTRUCTURE)
    store.record([], [], [replace(session("no-turn"), source=Source.LIVE, arm="champion", started_at=101.0)])
    ended("withheld", 101.0, consent=False)
    ended("of-a-stranger", 101.0, user="bob")
    ended("first", 101.0)  # drawn to wait for late facts
    ended("second", 101.0)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    ended("third", 102.0)
    await asyncio.sleep(0.05)
    assert not waiting.done(), "their attribution windows are not over"
    now = 2 * LIVE.train_after_s
    await waiting
    assert "2 of 2 sessions can be learnt from, 2 are too young, and 2 without consent" in lines.getvalue()
    await asyncio.wait_for(traffic.arrive("ab", since=100.0, sessions=4), timeout=60)
    assert traffic.clock() == now
    assert traffic.strata(store.sessions()) == {}, "their prompts hold no words of a person"
    store.close()


def test_a_wait_that_goes_on_after_a_kill_looks_when_another_would_have(tmp_path: Path) -> None:
    """It sees what is there at the next whole multiple of the pause, half a pause on, not at the start."""

    async def main(now: Callable[[], float]) -> float:
        store = Store.open(tmp_path / "store.db", now)
        told = {"source": Source.LIVE, "arm": "champion", "ending": Ending.FINISHED, "consent": True}
        store.accounts.set_consent(user="ada", granted=True, by="ada")
        show = Show(Console(quiet=True))
        about = replace(session("second"), started_at=0.0, **told)
        store.record([turn(0, "second")], [], [about])
        traffic = PeopleTraffic(store, TOKENIZER, show, now=now, poll_s=900.0)
        await traffic.arrive("live", since=0.0, sessions=1)
        store.close()
        return now()

    start = 900.0 * 10_000 + 300.0
    assert run_virtually(start, main) == pytest.approx(start + 150.0, abs=1.0)


def test_a_person_is_told_who_reads_and_what_is_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "store.db"
    path.parent.mkdir()
    store = Store.open(path)
    before = recording_notice(store, path)
    assert "whoever can open that reads all" in before and "not trained on" in before
    assert before.endswith(f"ostinato consent set yes --user local --store '{path}'")
    store.accounts.set_consent(user="local", granted=True, by="local")
    after = recording_notice(store, path)
    assert "may be trained on" in after and f"set no --user local --store '{path}'" in after
    store.close()
