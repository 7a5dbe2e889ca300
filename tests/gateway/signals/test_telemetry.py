"""Reports of clients over HTTP, and what the store holds when they are acknowledged."""

import asyncio
import gzip
import json
from typing import Any

import aiohttp
from tests.gateway.signals.test_otlp import as_json, as_protobuf

from ostinato.gateway.access.keys import hash_key
from ostinato.store import Store, StoreError
from ostinato.store.purge import purge
from ostinato.types import ApiKey, Ending, SignalKind

HI = {"role": "user", "content": "hi"}
OTHER = {"Authorization": "Bearer key-of-bob"}
SESSION = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
DECISION = {
    "body": "claude_code.tool_decision",
    "event.name": "tool_decision",
    "session.id": SESSION,
    "decision": "reject",
    "source": "user_reject",
}


def line(
    id: str, name: str = "user.prompt", session: str | None = "s1", **attributes: object
) -> dict[str, Any]:
    return {"id": id, "name": name, "time": 1.0, "session_id": session, "attributes": attributes}


async def tell(http, url: str, *lines: object, **headers: str) -> tuple[int, dict[str, Any]]:
    body = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    async with http.post(url + "/v1/events", data=body.encode(), headers=headers) as response:
        return response.status, await response.json()


async def feed(
    http, url: str, headers: dict[str, str] | None = None, **body: object
) -> tuple[int, dict[str, Any]]:
    async with http.post(url + "/feedback", json=body, headers=headers or {}) as response:
        return response.status, await response.json()


async def test_events_are_stored_once_and_become_signals(chat, http, gateway: str, store: Store) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    told = [line("e1"), line("e2", "edit.feedback", outcome="rejected"), line("e3", "edit.survival")]
    for _ in range(2):
        assert await tell(http, gateway, *told) == (200, {"accepted": 3, "errors": []})
    assert [event.id for event in store.events("s1")] == ["e1", "e2", "e3"]
    assert sorted(signal.kind for signal in store.signals("s1")) == ["edit_reverted", "user_prompt"]


async def test_a_bad_line_takes_no_other_down(chat, http, gateway: str, store: Store) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    await chat(HI, headers=OTHER | {"X-Session-Id": "bobs"})
    await tell(http, gateway, line("taken"))
    lines = [line("e1"), "{", line("e2", session="bobs"), line("taken", "tool.call"), line("e3", "nothing")]
    status, body = await tell(http, gateway, *lines)
    assert (status, body["accepted"]) == (207, 1)
    assert [error["line"] for error in body["errors"]] == [2, 3, 4, 5]
    assert "belongs to another user" in body["errors"][1]["message"]
    assert "was used before" in body["errors"][2]["message"]
    assert store.events("bobs") == []
    status, body = await tell(http, gateway, *lines[1:])
    assert (status, body["error"]["code"], body["accepted"]) == (422, "invalid_events", 0)
    assert (await tell(http, gateway))[0] == 200


async def test_events_from_before_the_session_count_too(chat, http, gateway: str, store: Store) -> None:
    await tell(http, gateway, line("early"))
    await tell(http, gateway, line("forged", "edit.feedback", outcome="rejected"), **OTHER)
    assert store.signals("s1") == []
    await chat(HI, headers={"X-Session-Id": "s1"})
    await tell(http, gateway, line("late"))
    assert {signal.id for signal in store.signals("s1")} == {"event/early", "event/late"}


async def test_a_purged_session_takes_nothing(chat, http, gateway: str, store: Store) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    purge(store, session="s1", by="root")
    status, body = await tell(http, gateway, line("e1"), line("e2", session=None))
    assert (status, body["accepted"]) == (207, 1)
    assert "was purged" in body["errors"][0]["message"]
    assert (await feed(http, gateway, session_id="s1", kind="edit_kept", value=1))[0] in {403, 410}


async def test_logs_become_events_in_both_encodings(chat, http, gateway: str, store: Store) -> None:
    await chat(HI, headers={"X-Claude-Code-Session-Id": SESSION})
    prompt = DECISION | {"body": "claude_code.user_prompt", "event.name": "user_prompt"}
    bodies = [
        (as_json(DECISION), {"Content-Type": "application/json"}),
        (as_protobuf(DECISION), {"Content-Type": "application/x-protobuf"}),
        (
            gzip.compress(as_protobuf(prompt)),
            {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
        ),
    ]
    for body, headers in bodies:
        async with http.post(gateway + "/v1/logs", data=body, headers=headers) as response:
            assert response.status == 200
            assert response.content_type == headers["Content-Type"]
            assert await response.read() in {b'{"partialSuccess":{}}', b""}
    kinds = {signal.kind: signal.value for signal in store.signals(SESSION)}
    assert kinds == {SignalKind.TOOL_DECISION: 0.0, SignalKind.USER_PROMPT: 1.0}
    assert len(store.events(SESSION)) == 2


async def test_logs_that_are_refused_are_counted(chat, http, gateway: str) -> None:
    await chat(HI, headers=OTHER | {"X-Claude-Code-Session-Id": SESSION})
    for encode, kind in ((as_json, "application/json"), (as_protobuf, "application/x-protobuf")):
        headers = {"Content-Type": kind}
        async with http.post(gateway + "/v1/logs", data=encode(DECISION), headers=headers) as response:
            assert response.status == 200
            assert b"belongs to another user" in await response.read()
    packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    whole = gzip.compress(as_json(DECISION))
    for body, status in ((b"none", 400), (whole[:-9], 400), (gzip.compress(b"\0" * (9 * 2**20)), 413)):
        async with http.post(gateway + "/v1/logs", data=body, headers=packed) as response:
            assert response.status == status


async def test_feedback_as_tensorzero_has_it(chat, http, gateway: str, store: Store) -> None:
    _, body, _ = await chat(HI, headers={"X-Session-Id": "s1"})
    answer = {"inference_id": body["id"], "id": "f1"}
    tried = await feed(http, gateway, **answer, metric_name="edit_kept", value=True, dryrun=True)
    assert tried == (200, {"id": "f1", "feedback_id": "f1"}) and store.signals("s1") == []
    told = answer | {"metric_name": "demonstration", "value": "x = 2", "tags": {"editor": "zed"}}
    for _ in range(2):
        assert (await feed(http, gateway, **told))[0] == 200
    (signal,), (tags,) = store.signals("s1"), store.events("s1")
    assert (signal.kind, signal.value, signal.turn) == (SignalKind.DEMONSTRATION, "x = 2", 0)
    assert (tags.name, tags.attributes) == ("feedback.tags", {"editor": "zed"})
    status, body = await feed(http, gateway, **told | {"value": "x = 3"})
    assert (status, body["error"]["code"]) == (409, "feedback_conflict")
    assert store.signals("s1") == [signal]


async def test_feedback_on_an_unknown_session_or_turn_is_404(chat, http, gateway: str) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    for about, code in (
        ({"inference_id": "s1/1"}, "unknown_turn"),
        ({"session_id": "s1", "turn": 9}, "unknown_turn"),
        ({"inference_id": "chatcmpl-s9/0"}, "unknown_session"),
        ({"episode_id": "s9"}, "unknown_session"),
    ):
        status, body = await feed(http, gateway, **about, metric_name="edit_kept", value=True)
        assert (status, body["error"]["code"]) == (404, code)


async def test_telling_needs_the_role(http, gateway: str, store: Store) -> None:
    from ostinato.store.accounts import hash_key

    store.add_key(hash_key("only-use"), "ada", "use")
    headers = {"Authorization": "Bearer only-use"}
    for path in ("/feedback", "/v1/events", "/v1/logs"):
        async with http.post(gateway + path, data=b"{}", headers=headers) as response:
            assert response.status == 403
            assert (await response.json())["error"]["code"] == "role_required"


async def test_an_ending_in_an_event_ends_the_session(chat, http, gateway: str, store: Store) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    await tell(http, gateway, line("e1", "session.end", ending="finished"))
    session = store.session("s1")
    assert session is not None and session.ending is Ending.FINISHED


async def test_a_store_that_fails_acknowledges_nothing(
    chat, http, gateway: str, store: Store, monkeypatch
) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    record = store.record

    def failing(*rows: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "record", failing)
    status, body = await tell(http, gateway, line("e1"))
    assert (status, body["error"]["code"]) == (503, "not_recorded")
    monkeypatch.setattr(store, "record", record)
    assert (await tell(http, gateway, line("e1")))[0] == 200


async def test_killed_under_load_no_acknowledged_event_is_lost(launch, engine, http, store: Store) -> None:
    first, taken = await launch(), list[str]()

    async def client(name: str) -> None:
        try:
            for i in range(10_000):
                status, body = await tell(http, first.url, *(line(f"{name}-{i}-{j}") for j in range(5)))
                assert (status, body["accepted"]) == (200, 5)
                taken.extend(f"{name}-{i}-{j}" for j in range(5))
        except aiohttp.ClientError:
            return

    load = [asyncio.create_task(client(f"c{i}")) for i in range(6)]
    while len(taken) < 200 and not any(task.done() for task in load):
        await asyncio.sleep(0.01)
    first.process.kill()
    await asyncio.gather(*load)
    assert store.known_events(taken).keys() == set(taken)


async def test_a_key_has_its_limit_for_telemetry_too(chat, http, gateway: str, store: Store) -> None:
    """Telemetry has a limit of its own, so that an eager reporter does not stop the work."""
    store.accounts.add(ApiKey(hash=hash_key("eager"), user="ada", requests_per_minute=2))
    mine = {"Authorization": "Bearer eager"}
    told = [await tell(http, gateway, line("e1"), **mine), await tell(http, gateway, line("e2"), **mine)]
    assert [status for status, _ in told] == [200, 200]
    for path, body in (("/v1/events", line("e3")), ("/feedback", {}), ("/v1/logs", {"resourceLogs": []})):
        async with http.post(gateway + path, json=body, headers=mine) as response:
            assert response.status == 429 and int(response.headers["Retry-After"]) > 0, path
    assert (await chat(HI, headers=mine))[0] == 200
    assert store.known_events(["e3"]) == {}
