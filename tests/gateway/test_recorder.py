import asyncio
from collections.abc import Iterator

import pytest

from ostinato.gateway.recorder import Recorder
from ostinato.store import Store, StoreError
from ostinato.types import Completion, Event, FinishReason, Session, Signal, SignalKind, Source, Turn


def session(name: str) -> Session:
    return Session(id=name, source=Source.LIVE, user="a", arm="m", task_id=None, harness="", started_at=0.0)


def turn(name: str, index: int) -> Turn:
    completion = Completion(ids=(1,), logprobs=(-0.5,), versions=(1,), finish=FinishReason.STOP)
    return Turn(
        session_id=name,
        index=index,
        segment=0,
        arm="m",
        prompt_ids=(1, 2),
        completion=completion,
        started_at=0.0,
        latency_s=0.0,
    )


@pytest.fixture
def recorder(store: Store) -> Iterator[Recorder]:
    recorder = Recorder(store)
    recorder.start()
    yield recorder
    recorder.stop()


async def test_acknowledged_turns_are_in_the_store(recorder: Recorder, store: Store) -> None:
    await recorder.submit(turn=turn("s1", 0), session=session("s1"))
    assert [t.id for t in store.turns("s1")] == ["s1/0"]


async def test_a_bad_entry_does_not_fail_its_neighbours(recorder: Recorder, store: Store) -> None:
    await recorder.submit(session=session("s1"))
    good = [recorder.submit(turn=turn("s1", i)) for i in range(20)]
    nobodys = Signal(session_id="nobody", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=0.0)
    theirs = Signal(session_id="s1", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=0.0)
    event = Event(id="e1", name="user.prompt", user="a", observed_at=0.0)
    bad = recorder.submit(signals=[theirs, nobodys], events=[event])
    more = [recorder.submit(turn=turn("s1", i)) for i in range(20, 40)]
    with pytest.raises(StoreError, match="never started"):
        await bad
    await asyncio.gather(*good, *more)
    assert len(store.turns("s1")) == 40
    assert store.signals("s1") == [] and store.known_events(["e1"]) == {}


async def test_stopping_commits_what_is_queued(store: Store) -> None:
    recorder = Recorder(store)
    waiting = [recorder.submit(turn=turn("s1", i), session=session("s1")) for i in range(300)]
    recorder.start()
    recorder.stop()
    await asyncio.gather(*waiting)
    assert len(store.turns("s1")) == 300


async def test_a_disk_that_is_too_slow_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.gateway.recorder.MOST_QUEUED", 3)
    recorder = Recorder(store)
    waiting = [recorder.submit(session=session(f"s{i}")) for i in range(4)]
    with pytest.raises(StoreError, match="3 requests wait for the disk"):
        await waiting[3]
    recorder.start()
    await asyncio.gather(*waiting[:3])
    recorder.stop()
