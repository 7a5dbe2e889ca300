"""The application over HTTP: what it accepts, refuses, records and counts.

Covers gateway/app.py, gateway/body.py, gateway/errors.py, gateway/info_routes.py, gateway/metrics.py and
gateway/timing.py.
"""

import asyncio
import gzip
import io
import json

import aiohttp
import pytest
from tests.gateway.conftest import serving

from ostinato.engine.base import PromptTooLongError
from ostinato.gateway.app import StoppingMiddleware
from ostinato.store import Store, StoreError
from ostinato.store.accounts import hash_key
from ostinato.store.purge import purge
from ostinato.types import ApiKey, Arm, Ending, FinishReason, Signal, SignalKind, Source

HI = {"role": "user", "content": "hi"}
ADMIN = {"Authorization": "Bearer key-of-admin"}
OTHER = {"Authorization": "Bearer key-of-bob"}


async def test_a_turn_is_recorded_before_it_is_answered(chat, store: Store, renderer) -> None:
    asked = {"X-Session-Id": "s1", "X-Task-Id": "t", "X-Harness-Hash": "9f"}
    status, body, headers = await chat(HI, headers=asked)
    assert status == 200
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "done"}
    told = [headers[f"x-ostinato-{name}"] for name in ("session", "turn", "arm", "version")]
    assert told == ["s1", "0", "main", "-1"]
    session, (turn,) = store.session("s1"), store.turns("s1")
    assert session is not None
    assert (session.user, session.arm, session.task_id, session.harness) == ("ada", "main", "t", "9f")
    assert session.source is Source.LIVE
    assert turn.prompt_ids == tuple(renderer.render([HI]))
    assert renderer.parse(turn.completion.ids).content == "done"
    assert turn.completion.finish is FinishReason.STOP
    assert body["usage"]["total_tokens"] == len(turn.prompt_ids) + len(turn.completion.ids)


async def test_a_turn_asked_again_is_answered_from_the_record(chat, script, store: Store) -> None:
    asked = {"X-Session-Id": "s1", "X-Turn": "0"}
    _, first, _ = await chat(HI, headers=asked)
    script.say = lambda prompt: "something else"
    _, again, _ = await chat(HI, headers=asked)
    assert again == first
    async with chat.http.post(
        chat.url + "/v1/chat/completions",
        json={"model": "ostinato", "messages": [HI], "stream": True},
        headers=asked,
    ) as response:
        assert b'"content": "done"' in await response.read()
    assert len(script.asked) == len(store.turns("s1")) == 1
    status, body, _ = await chat(HI, headers=asked | {"X-Turn": "7"})
    assert (status, body["error"]["code"]) == (409, "turn_conflict")


async def test_each_turn_has_its_own_seed_and_the_same_when_sampled_again(chat, script) -> None:
    for name in ("s1", "s2", "s1"):
        await chat(HI, headers={"X-Session-Id": name})
    await chat(HI, seed=5)
    seeds = [request.sampling.seed for request in script.asked]
    assert len(set(seeds)) == 4
    assert seeds[3] == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


async def test_a_name_that_somebody_has_taken_keeps_nobody_from_theirs(
    chat, http, gateway: str, store: Store
) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    for _ in range(2):
        status, _, headers = await chat(HI, headers=OTHER | {"X-Session-Id": "s1"})
        assert status == 200
    others = headers["x-ostinato-session"]
    assert others != "s1"
    status, _, headers = await chat(HI, headers=ADMIN | {"X-Session-Id": "s1"})
    assert status == 200 and headers["x-ostinato-session"] == "s1"
    assert [len(store.turns(id)) for id in ("s1", others)] == [2, 2]
    kept = {"session_id": "s1", "kind": "edit_kept", "value": True, "id": "f1"}
    for headers in ({}, OTHER, OTHER):
        async with http.post(gateway + "/feedback", json=kept, headers=headers) as response:
            assert response.status == 200
    assert [len(store.signals(id)) for id in ("s1", others)] == [1, 1]
    event = b'{"id": "e1", "name": "session.start", "time": 1e9, "session_id": "s1"}'
    for headers in ({}, OTHER, OTHER):
        async with http.post(gateway + "/v1/events", data=event, headers=headers) as response:
            assert response.status == 200, await response.text()
    assert [len(store.events(id)) for id in ("s1", others)] == [1, 1]


async def test_a_session_keeps_its_arm_while_it_exists(chat, store: Store, engine: str) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    old, new = (Arm(name=n, version=4, share=s, engines=(engine,)) for n, s in (("main", 0.0), ("new", 1.0)))
    store.set_arms([old, new])
    await asyncio.sleep(0.3)
    assert (await chat(HI, headers={"X-Session-Id": "s1"}))[2]["x-ostinato-arm"] == "main"
    assert (await chat(HI, headers={"X-Session-Id": "s2"}))[2]["x-ostinato-arm"] == "new"
    store.set_arms([new])
    await asyncio.sleep(0.3)
    assert (await chat(HI, headers={"X-Session-Id": "s1"}))[2]["x-ostinato-arm"] == "new"


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"X-Session-Id": "a b"}, "X-Session-Id"),
        ({"X-Session-Id": "x" * 300}, "X-Session-Id"),
        ({"X-Session-Source": "dream"}, "X-Session-Source"),
        ({"X-Turn": "-1"}, "X-Turn"),
        ({"X-Task-Id": "é"}, "x-task-id"),
    ],
)
async def test_odd_headers_are_refused(chat, headers: dict[str, str], name: str) -> None:
    status, body, _ = await chat(HI, headers=headers)
    assert status == 400
    assert body["error"]["param"] == name


@pytest.mark.parametrize("source", ["practice", "bench", "teacher"])
async def test_an_admin_may_name_the_source_of_a_session(chat, store: Store, source: str) -> None:
    await chat(HI, headers=ADMIN | {"X-Session-Id": "s1", "X-Session-Source": source})
    session = store.session("s1")
    assert session is not None
    assert session.source is Source(source)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1", b'{"a":' * 100_000, b"\xff\xfe", b'{"model": "\\ud800"}', b"null", b"3"]
)
async def test_a_malformed_body_is_refused(http: aiohttp.ClientSession, gateway: str, body: bytes) -> None:
    for path, status in (("/v1/chat/completions", {400}), ("/feedback", {400, 422})):
        async with http.post(gateway + path, data=body) as response:
            assert response.status in status
            assert (await response.json())["error"]["message"]


async def test_a_body_may_be_packed_and_no_encoding_is_passed_over(
    http: aiohttp.ClientSession, gateway: str
) -> None:
    body = json.dumps({"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}).encode()
    for encoding, sent, status in (
        *(
            ("gzip", gzip.compress(body), 200),
            ("GZIP", gzip.compress(body)[:-9], 400),
            ("identity", body, 200),
        ),
        *(("gzip", gzip.compress(b"{}") + gzip.compress(body), 400), ("zstd", body, 415), ("", body, 200)),
    ):
        headers = {"Content-Encoding": encoding}
        async with http.post(gateway + "/v1/chat/completions", data=sent, headers=headers) as response:
            assert (response.status, encoding) == (status, encoding)
            assert status != 415 or "zstd" in (await response.json())["error"]["message"]


async def test_the_end_of_the_server_asks_whoever_waits_to_try_again() -> None:
    sent, waiting = [], asyncio.Event()

    async def endless(scope: object, receive: object, send: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": [], "query_string": b""}
    task = asyncio.create_task(StoppingMiddleware(endless)(scope, None, send))
    await waiting.wait()
    task.cancel()
    await task
    start, body = sent
    assert (start["status"], json.loads(body["body"])["type"]) == (503, "error")
    assert (b"retry-after", b"1") in start["headers"]


async def test_a_body_that_is_too_large_is_refused(http: aiohttp.ClientSession, gateway: str) -> None:
    async with http.post(gateway + "/feedback", data=io.BytesIO(b" " * (9 * 2**20))) as response:
        assert response.status == 413


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("POST", "/feedback")]
)
async def test_every_route_but_health_needs_a_key(gateway: str, method: str, path: str) -> None:
    async with aiohttp.ClientSession(gateway) as stranger:
        for headers in ({}, {"Authorization": "Bearer nope"}, {"Authorization": "Basic key-of-ada"}):
            async with stranger.request(method, path, headers=headers, json={}) as response:
                assert response.status == 401
                assert (await response.json())["error"]["code"] == "invalid_api_key"
        async with stranger.get("/healthz") as response:
            assert (await response.json())["status"] == "ok"


async def test_unknown_paths_and_methods_look_alike(http, gateway: str) -> None:
    async with http.get(gateway + "/v2") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "not_found")
    async with http.get(gateway + "/feedback") as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")


async def test_feedback_becomes_a_signal_once(chat, http, gateway: str, store: Store) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    kept = {"session_id": "s1", "kind": "edit_kept", "value": True, "id": "f1"}
    for _ in range(2):
        async with http.post(gateway + "/feedback", json=kept) as response:
            assert (response.status, await response.json()) == (200, {"id": "f1", "feedback_id": "f1"})
    over = {"episode_id": "s1", "metric_name": "ending", "value": "finished"}
    async with http.post(gateway + "/feedback", json=over) as response:
        assert response.status == 200
    signals: list[Signal] = store.signals("s1")
    assert sorted(signal.kind for signal in signals) == [SignalKind.EDIT_KEPT, SignalKind.ENDING]
    session = store.session("s1")
    assert session is not None
    assert session.ending is Ending.FINISHED


async def test_feedback_that_fits_nothing_is_refused(chat, http, gateway: str) -> None:
    await chat(HI, headers={"X-Session-Id": "s1"})
    kept = {"session_id": "s1", "kind": "edit_kept", "value": True}
    cases = [
        (kept | {"session_id": "nobody"}, {}, 404, "unknown session 'nobody'"),
        (kept | {"kind": "liked"}, {}, 422, "kind: expected one of ending, hidden_tests"),
        (kept, OTHER, 403, "belongs to another user"),
    ]
    for body, headers, status, message in cases:
        async with http.post(gateway + "/feedback", json=body, headers=headers) as response:
            assert response.status == status
            assert message in (await response.json())["error"]["message"]


async def test_text_arrives_while_the_model_is_still_sampling(
    http, renderer, serve_lines, gateway_of
) -> None:
    """The engine holds its second half back until the client has seen the first."""
    seen = asyncio.Event()

    async def lines(asked):
        half = renderer.tokenizer.encode("half one. ")
        for i in half:
            yield {"id": i, "logprob": -0.5, "version": 1}
        await asyncio.wait_for(seen.wait(), 300)
        ids = [*half, *renderer.tokenizer.encode("two"), renderer.stop_ids[0]]
        yield {"ids": ids, "logprobs": [-0.5] * len(ids), "versions": [1] * len(ids), "finish": "stop"}

    url = await gateway_of(await serve_lines(lines))
    said = ""
    body = {"model": "ostinato", "messages": [HI], "stream": True}
    async with http.post(url + "/v1/chat/completions", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                said += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
            if "half one." in said:
                seen.set()
    assert said == "half one. two"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine(
    http, serve_lines, gateway_of, store: Store, stream: bool
) -> None:
    freed = asyncio.Event()

    async def lines(asked):
        try:
            while True:
                yield {"id": 70, "logprob": -0.5, "version": 1}
                await asyncio.sleep(0.01)
        finally:
            freed.set()

    url = await gateway_of(await serve_lines(lines))
    body = {"model": "ostinato", "messages": [HI], "stream": stream}
    headers = {"X-Session-Id": "s1"}

    async def ask() -> None:
        async with http.post(url + "/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(), 0.3)
    await asyncio.wait_for(freed.wait(), 300)
    assert store.turns("s1") == []


async def test_a_failing_store_is_reported_and_nothing_is_lost(chat, store: Store, monkeypatch) -> None:
    """While the disk is full a turn gets 503; afterwards the same turn succeeds."""
    asked = {"X-Session-Id": "s1", "X-Turn": "0"}
    record = store.record

    def failing(*rows):
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "record", failing)
    status, body, headers = await chat(HI, headers=asked)
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "not_recorded", "1")
    monkeypatch.setattr(store, "record", record)
    status, body, _ = await chat(HI, headers=asked)
    assert (status, body["ostinato"]["turn"]) == (200, 0)
    assert [turn.id for turn in store.turns("s1")] == ["s1/0"]


async def test_an_ended_session_can_go_on(chat, http, gateway: str, store: Store) -> None:
    headers = {"X-Session-Id": "s1"}
    _, body, _ = await chat(HI, headers=headers)
    over = {"session_id": "s1", "kind": "ending", "value": "finished"}
    async with http.post(gateway + "/feedback", json=over) as response:
        assert response.status == 200
    status, body, _ = await chat(HI, body["choices"][0]["message"], HI, headers=headers)
    assert (status, body["ostinato"]["turn"], body["ostinato"]["segment"]) == (200, 1, 0)


@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900, 960, 990])
async def test_a_body_nested_deeply_is_read_or_refused(chat, depth: int) -> None:
    schema: dict[str, object] = {}
    for _ in range(depth):
        schema = {"a": schema}
    text = json.dumps(schema) if depth < 900 else '{"a":' * depth + "{}" + "}" * depth
    tool = '{"type": "function", "function": {"name": "f", "parameters": ' + text + "}}"
    body = '{"model": "ostinato", "messages": [{"role": "user", "content": "hi"}], "tools": [' + tool + "]}"
    async with chat.http.post(chat.url + "/v1/chat/completions", data=body) as response:
        assert response.status in {200, 400}, await response.text()


async def test_a_key_over_its_limit_gets_a_time_to_retry(chat, store: Store) -> None:
    store.accounts.add(ApiKey(hash=hash_key("key-of-eve"), user="eve", requests_per_minute=2))
    eve = {"x-api-key": "key-of-eve", "Authorization": ""}
    assert [(await chat(HI, headers=eve))[0] for _ in range(2)] == [200, 200]
    status, body, headers = await chat(HI, headers=eve)
    assert (status, body["error"]["code"], headers["Retry-After"]) == (429, "rate_limit_exceeded", "30")
    assert (await chat(HI))[0] == 200


async def test_only_so_many_calls_of_a_key_are_under_way(
    http, serve_lines, gateway_of, store: Store, renderer
) -> None:
    store.accounts.add(ApiKey(hash=hash_key("key-of-eve"), user="eve", concurrent=1))
    going, go_on = asyncio.Event(), asyncio.Event()

    async def lines(asked):
        going.set()
        await asyncio.wait_for(go_on.wait(), 300)
        yield {"ids": [renderer.stop_ids[0]], "logprobs": [-0.5], "versions": [1], "finish": "stop"}

    url = await gateway_of(await serve_lines(lines))

    async def ask() -> int:
        body, headers = {"model": "ostinato", "messages": [HI]}, {"Authorization": "Bearer key-of-eve"}
        async with http.post(url + "/v1/chat/completions", json=body, headers=headers) as response:
            return response.status

    first = asyncio.create_task(ask())
    await going.wait()
    assert await ask() == 429
    go_on.set()
    assert [await first, await ask()] == [200, 200]


async def test_a_session_knows_whether_it_may_be_trained_on(chat, store: Store) -> None:
    say = store.accounts.set_consent
    for user, organisation in (("eve", "acme"), ("dan", "acme"), ("fay", "emca")):
        store.accounts.add(ApiKey(hash=hash_key(user), user=user, organisation=organisation))
    say(organisation="acme", granted=True, by="legal")
    say(organisation="acme", user="eve", granted=True, by="eve")
    say(organisation="emca", user="fay", granted=True, by="fay")
    for user in ("eve", "dan", "fay"):
        await chat(HI, headers={"X-Session-Id": user, "Authorization": f"Bearer {user}"})
    practice = {"X-Session-Id": "p", "X-Session-Source": "practice"}
    await chat(HI, headers=ADMIN | practice)
    sessions = [store.session(id) for id in ("eve", "dan", "fay", "p")]
    assert [(s and s.organisation, s and s.consent) for s in sessions] == [
        ("acme", True),
        ("acme", False),
        ("emca", False),
        ("", True),
    ]


async def test_a_namesake_in_another_organisation_is_another_user(chat, store: Store) -> None:
    store.accounts.add(ApiKey(hash=hash_key("other-ada"), user="ada", organisation="emca"))
    await chat(HI, headers={"X-Session-Id": "s1"})
    _, _, headers = await chat(HI, headers={"X-Session-Id": "s1", "Authorization": "Bearer other-ada"})
    session = store.session(headers["x-ostinato-session"])
    assert headers["x-ostinato-session"] != "s1" and session is not None and session.organisation == "emca"


async def test_feedback_needs_its_role(chat, http, gateway: str, store: Store) -> None:
    store.add_key(hash_key("only-use"), "ada", "use")
    store.add_key(hash_key("only-feedback"), "ada", "feedback")
    await chat(HI, headers={"X-Session-Id": "s1"})
    kept = {"session_id": "s1", "kind": "edit_kept", "value": True}
    for key, feedback, asked in (("only-use", 403, 200), ("only-feedback", 200, 403)):
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post(gateway + "/feedback", json=kept, headers=headers) as response:
            assert response.status == feedback
        assert (await chat(HI, headers=headers))[0] == asked


async def test_a_purged_session_cannot_be_continued(chat, store: Store) -> None:
    _, body, _ = await chat(HI, headers={"X-Session-Id": "s1"})
    purge(store, session="s1", by="root")
    answer = body["choices"][0]["message"]
    status, body, _ = await chat(HI, answer, HI, headers={"X-Session-Id": "s1"})
    assert (status, body["error"]["code"]) == (410, "session_purged")


PATHS = {
    "/v1/chat/completions": {"model": "ostinato", "messages": [HI]},
    "/v1/messages": {"model": "ostinato", "messages": [HI], "max_tokens": 50_000},
    "/v1/responses": {"model": "ostinato", "input": "hi"},
}
dialects = pytest.mark.parametrize("path", PATHS)


@dialects
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine_in_every_dialect(
    http, serve_lines, gateway_of, path: str, stream: bool
) -> None:
    began, freed = asyncio.Event(), asyncio.Event()

    async def lines(asked):
        try:
            while True:
                yield {"id": 70, "logprob": -0.5, "version": 1}
                began.set()
                await asyncio.sleep(0.01)
        finally:
            freed.set()

    url = await gateway_of(await serve_lines(lines))
    headers = {"X-Session-Id": "s1"}

    async def ask() -> None:
        async with http.post(url + path, json=PATHS[path] | {"stream": stream}, headers=headers) as response:
            await response.read()

    asking = asyncio.create_task(ask())
    await began.wait()
    asking.cancel()
    await asyncio.wait_for(freed.wait(), 300)


@dialects
async def test_every_reply_has_a_request_id_and_the_gateways_overhead(http, gateway: str, path: str) -> None:
    ids = set()
    for body in (PATHS[path], PATHS[path] | {"stream": True}, {}, b"{"):
        data = body if isinstance(body, bytes) else json.dumps(body)
        async with http.post(gateway + path, data=data) as response:
            ids.add(response.headers["x-request-id"])
            assert float(response.headers["x-ostinato-overhead-ms"]) >= 0
            assert response.status == (200 if b"model" in str(body).encode() else 400)
            assert ("x-ostinato-arm" in response.headers) == (response.status == 200)
    assert len(ids) == 4


@dialects
async def test_an_unknown_model_gets_a_list_of_the_known_ones(
    http, store, renderer, engine, path: str
) -> None:
    async with serving(store, renderer, aliases=("gpt-5", "claude-*")) as url:
        for model, status in (("gpt-5", 200), ("claude-opus", 200), ("gpt-4", 404)):
            async with http.post(url + path, json=PATHS[path] | {"model": model}) as response:
                assert response.status == status
                value = await response.json()
                if status == 200:
                    assert value["model"] == model
        assert value["error"]["message"] == ("unknown model 'gpt-4', use 'ostinato', 'gpt-5', 'claude-*'")
        async with http.get(url + "/v1/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["ostinato", "gpt-5"]


@dialects
@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_too_long_is_refused_before_the_stream_begins(
    http, script, gateway: str, path: str, stream: bool
) -> None:
    def too_long(prompt: str) -> str:
        raise PromptTooLongError("600 tokens, the context has 512")

    script.say = too_long
    async with http.post(gateway + path, json=PATHS[path] | {"stream": stream}) as response:
        value = await response.json()
        assert (response.status, value["error"]["code"]) == (400, "context_length_exceeded")
        assert value["error"]["message"].startswith("prompt is too long") == (path == "/v1/messages")


@dialects
async def test_a_stream_that_the_engine_breaks_ends_in_the_dialects_own_error(
    http, serve_lines, gateway_of, store: Store, path: str
) -> None:
    async def lines(asked):
        yield {"id": 70, "logprob": -0.5, "version": 1}
        yield {"error": {"type": "InvalidRequestError", "message": "lost my weights", "status": 400}}

    url = await gateway_of(await serve_lines(lines))
    headers = {"X-Session-Id": "s1"}
    async with http.post(url + path, json=PATHS[path] | {"stream": True}, headers=headers) as response:
        last = (await response.text()).strip().rsplit("\n\n", 1)[-1]
    value = json.loads(last.partition("data: ")[2])
    error = value["response"]["error"] if "response" in value else value["error"]
    assert error["message"] == "lost my weights"
    assert store.turns("s1") == []


async def test_clients_without_a_session_have_one_for_each_conversation(chat, store: Store) -> None:
    messages = [[{"role": "user", "content": words}] for words in ("do this", "do that", "hi")]
    for _ in range(3):
        for told in messages:
            _, body, _ = await chat(*told)
            told += [body["choices"][0]["message"], HI]
    sessions = store.sessions()
    assert len(sessions) == 3
    assert [len(store.turns(session.id)) for session in sessions] == [3, 3, 3]
    assert {turn.segment for session in sessions for turn in store.turns(session.id)} <= {0, 1}


async def test_two_clients_may_write_one_session_at_once(
    http, serve_lines, gateway_of, store: Store, renderer
) -> None:
    """Two requests at once do not wait for each other; each turn has a segment of its own."""
    both = asyncio.Barrier(2)

    async def lines(asked):
        await asyncio.wait_for(both.wait(), 300)
        yield {"ids": [renderer.stop_ids[0]], "logprobs": [-0.5], "versions": [1], "finish": "stop"}

    url = await gateway_of(await serve_lines(lines))

    async def ask() -> int:
        body, headers = PATHS["/v1/chat/completions"], {"X-Session-Id": "s1"}
        async with http.post(url + "/v1/chat/completions", json=body, headers=headers) as response:
            return response.status

    assert await asyncio.gather(ask(), ask()) == [200, 200]
    assert sorted((turn.index, turn.segment) for turn in store.turns("s1")) in (
        [(0, 0), (1, 1)],
        [(0, 1), (1, 0)],
    )


async def test_an_edited_history_is_recorded_marked_and_counted(
    chat, http, gateway: str, store: Store
) -> None:
    headers = {"X-Session-Id": "s1"}
    await chat(HI, headers=headers)
    _, body, _ = await chat(HI, {"role": "assistant", "content": "never said"}, HI, headers=headers)
    assert body["ostinato"]["untrainable"] == "the history holds an answer that this session did not give"
    assert [turn.untrainable is None for turn in store.turns("s1")] == [True, False]
    async with http.get(gateway + "/metrics", headers={"Authorization": ""}) as response:
        told = await response.text()
    assert 'ostinato_untrainable_turns_total{reason="the history holds an answer' in told
    assert 'ostinato_turns_total{arm="main",dialect="chat",kind="main"} 2.0' in told
    assert 'ostinato_requests_total{route="/v1/chat/completions",status="200"} 2.0' in told
    assert "ada" not in told


async def test_a_silent_stream_sends_pings(http, serve_lines, gateway_of, monkeypatch) -> None:
    monkeypatch.setattr("ostinato.gateway.turn_response.PING_S", 0.05)

    async def lines(asked):
        yield {"id": 70, "logprob": -0.5, "version": 1}
        await asyncio.sleep(0.3)
        yield {"ids": [70, 2], "logprobs": [-0.5, -0.5], "versions": [1, 1], "finish": "stop"}

    url = await gateway_of(await serve_lines(lines))
    for path, ping in (("/v1/messages", "event: ping\n"), ("/v1/responses", ": waiting\n")):
        async with http.post(url + path, json=PATHS[path] | {"stream": True}) as response:
            assert ping in await response.text()


async def test_the_document_lists_every_route(http, gateway: str) -> None:
    async with http.get(gateway + "/openapi.json") as response:
        document = await response.json()
    assert document["paths"].keys() >= {*PATHS, "/v1/messages/count_tokens", "/v1/models", "/healthz"}


@dialects
async def test_a_body_that_is_too_large_is_refused_in_the_dialects_own_shape(
    http, gateway: str, path: str
) -> None:
    async with http.post(gateway + path, data=io.BytesIO(b" " * (9 * 2**20))) as response:
        assert response.status == 413
        value = await response.json()
    assert value["error"]["type"] == (
        "request_too_large" if path == "/v1/messages" else "invalid_request_error"
    )


@dialects
async def test_the_reply_to_an_internal_error_has_a_request_id_too(
    http, gateway: str, store: Store, monkeypatch, path
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(store, "key", broken)
    async with http.post(gateway + path, json=PATHS[path]) as response:
        assert response.status == 500
        assert response.headers["x-request-id"]
        assert "RuntimeError" in (await response.json())["error"]["message"]


async def test_a_key_is_told_whether_its_sessions_may_train(http, gateway: str) -> None:
    async with http.get(gateway + "/v1/models/ostinato") as response:
        assert (await response.json())["recording"] == {
            "user": "ada",
            "organisation": "",
            "trained_on": False,
        }
