"""The endings of sessions that do not report one."""

import asyncio
import json
import time

import pytest
from tests.gateway.conftest import READ

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.conversation_cache import ConversationCache
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.signals.endings import IDLE_S, SessionEndings
from ostinato.gateway.tokens.message_graph import HeldConversation
from ostinato.store import Store
from ostinato.types import Ending, GenerateRequest, SignalKind

HI = {"role": "user", "content": "hi"}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


async def leave(http, url: str, session: str, at: float | None = None, **told: str) -> None:
    when = time.time() if at is None else at
    line = {"id": f"{session}-{when}", "name": "session.end", "time": when, "session_id": session}
    async with http.post(
        url + "/v1/events", data=json.dumps(line | {"attributes": told}).encode()
    ) as response:
        assert response.status == 200, await response.text()


def ending(store: Store, session: str) -> Ending | None:
    found = store.session(session)
    assert found is not None
    return found.ending


@pytest.mark.parametrize(("said", "how"), [("done", Ending.FINISHED), (CALL, Ending.ABANDONED)])
async def test_an_agent_that_leaves_ends_its_session(
    chat, store: Store, script, said: str, how: Ending
) -> None:
    script.say = lambda _: said
    await chat(HI, headers={"X-Session-Id": "s1"}, tools=[READ])
    await leave(chat.http, chat.url, "s1", reason="prompt_input_exit")
    assert ending(store, "s1") is how
    (signal,) = [s for s in store.signals("s1") if s.kind is SignalKind.ENDING]
    assert signal.value == how.value


async def test_an_ending_that_the_agent_reports_stays(chat, http, gateway, store: Store) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    await leave(http, gateway, "s1", ending="turn_limit")
    await leave(http, gateway, "s1", reason="other")
    assert ending(store, "s1") is Ending.TURN_LIMIT


async def test_a_late_report_of_an_end_does_not_end_a_session_that_went_on(
    chat, http, gateway, store: Store
) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    await leave(http, gateway, "s1", at=time.time() - 3_600)
    assert ending(store, "s1") is None


@pytest.fixture
async def endings(store: Store, renderer):
    recorder = Recorder(store)
    recorder.start()
    yield SessionEndings(store, ConversationCache(store), recorder, renderer)
    recorder.stop()


async def test_an_idle_session_ends(chat, store: Store, endings: SessionEndings) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    await chat(HI, headers={"X-Session-Id": "s2", "X-Turn-Type": "side"})
    now = time.time()
    await endings.sweep(now + IDLE_S - 60)
    assert ending(store, "s1") is None
    await endings.sweep(now + IDLE_S + 60)
    assert {ending(store, id) for id in ("s1", "s2")} == {Ending.FINISHED}
    await endings.sweep(now + IDLE_S + 60)
    assert len([s for s in store.signals("s1") if s.kind is SignalKind.ENDING]) == 1


async def test_sessions_of_our_own_are_not_ended(
    http, gateway, store: Store, endings: SessionEndings
) -> None:
    headers = {"Authorization": "Bearer key-of-admin", "X-Session-Id": "p1", "X-Session-Source": "practice"}
    body = {"model": "ostinato", "messages": [HI]}
    async with http.post(gateway + "/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200
    await endings.sweep(time.time() + 2 * IDLE_S)
    await endings.agent_left("p1", time.time())
    assert ending(store, "p1") is None


async def test_no_session_ends_while_a_turn_is_under_way(http, store: Store, renderer, gateway_of) -> None:
    """The agent says that it left while the engine samples: the ending waits for the turn."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def script(_: GenerateRequest) -> list[int]:
        asked.set()
        await go_on.wait()
        return [*renderer.tokenizer.encode("done"), renderer.stop_ids[0]]

    engine = await serve_scripted(ScriptedEngine(script))
    url = await gateway_of(engine.url)
    body = {"model": "ostinato", "messages": [HI]}

    async def turn() -> int:
        async with http.post(
            url + "/v1/chat/completions", json=body, headers={"X-Session-Id": "s1"}
        ) as response:
            return response.status

    go_on.set()
    assert await turn() == 200
    asked.clear(), go_on.clear()
    second = asyncio.create_task(turn())
    await asked.wait()
    await leave(http, url, "s1")
    assert ending(store, "s1") is None
    go_on.set()
    assert await second == 200
    await leave(http, url, "s1", at=time.time())
    assert ending(store, "s1") is Ending.FINISHED and len(store.turns("s1")) == 2
    await engine.close()


async def test_a_report_during_a_turn_takes_effect_at_the_next_sweep(
    chat, store: Store, endings: SessionEndings
) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    conversation = await endings._conversations.held("s1")
    assert isinstance(conversation, HeldConversation)
    conversation.waiting += 1
    await endings.agent_left("s1", time.time())
    await endings.sweep(time.time())
    assert ending(store, "s1") is None
    conversation.waiting -= 1
    await endings.sweep(time.time())
    assert ending(store, "s1") is Ending.FINISHED
