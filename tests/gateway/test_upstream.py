import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp
import pytest

from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.errors import ApiError
from ostinato.gateway.upstream import EngineClient, SampledToken, always
from ostinato.types import Abilities, Arm, Completion, FinishReason, GenerateRequest, Sampling

ASKED = GenerateRequest(
    request_id="r",
    session_id="s",
    prompt_ids=(1, 2),
    stop_ids=(9,),
    max_tokens=6,
    sampling=Sampling(seed=100),
)
DONE = {"ids": [3, 9], "logprobs": [-0.5, -0.25], "versions": [1, 1], "finish": "stop"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def everything(client: EngineClient, url: str) -> tuple[list[SampledToken], Completion]:
    events = [event async for event in client.stream(always(url), ASKED)]
    *parts, completion = events
    assert isinstance(completion, Completion)
    return [token for part in parts if isinstance(part, tuple) for token in part], completion


@pytest.fixture
async def client():
    client = EngineClient(patience_s=10.0)
    yield client
    await client.aclose()


async def test_it_waits_for_an_engine_that_is_away(client, serve_lines) -> None:
    async def lines(asked):
        yield DONE

    port = free_port()
    waiting = asyncio.create_task(client.generate(always(f"http://127.0.0.1:{port}"), ASKED))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await serve_lines(lines, port)
    assert (await waiting).ids == (3, 9)


async def test_its_patience_ends(serve_lines) -> None:
    client = EngineClient(patience_s=0.2)
    with pytest.raises(ApiError, match="the engine is away") as caught:
        await client.generate(always(f"http://127.0.0.1:{free_port()}"), ASKED)
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "1")
    await client.aclose()


async def test_a_dying_engine_is_continued_by_the_next(client, serve_lines) -> None:
    heard = []

    async def lines(asked):
        heard.append(asked)
        if len(heard) == 1:
            yield {"id": 5, "logprob": -1.0, "version": 1}
            yield {"id": 6, "logprob": -2.0, "version": 1}
            return
        yield {"id": 7, "logprob": -3.0, "version": 2}
        rest = {"ids": [7, 9], "logprobs": [-3.0, -4.0], "versions": [2, 2], "finish": "stop"}
        yield rest | {"routes": "AAEC/w=="}

    tokens, completion = await everything(client, await serve_lines(lines))
    assert [token.id for token in tokens] == [5, 6, 7]
    assert completion.ids == (5, 6, 7, 9)
    assert completion.logprobs == (-1.0, -2.0, -3.0, -4.0)
    assert completion.versions == (1, 1, 2, 2)
    assert completion.routes == bytes([0, 1, 2, 255])
    assert [(h["prompt_ids"], h["max_tokens"], h["sampling"]["seed"]) for h in heard] == [
        ([1, 2], 6, 100),
        ([1, 2, 5, 6], 4, 102),
    ]


@pytest.mark.parametrize(
    ("ids", "finish"), [((5, 9), FinishReason.STOP), ((1, 2, 3, 4, 5, 6), FinishReason.LENGTH)]
)
async def test_only_the_last_line_lost_is_nothing_lost(client, serve_lines, ids, finish) -> None:
    async def lines(asked):
        for i in ids:
            yield {"id": i, "logprob": -1.0, "version": 1}

    _, completion = await everything(client, await serve_lines(lines))
    assert (completion.ids, completion.finish) == (ids, finish)


async def test_a_request_that_the_engine_refuses_is_not_sent_again(client, script) -> None:
    from ostinato.engine.base import PromptTooLongError

    async def policy(request):
        raise PromptTooLongError("600 tokens, the context has 512")

    running = await serve_scripted(ScriptedEngine(policy))
    with pytest.raises(ApiError, match="600 tokens") as caught:
        await client.generate(always(running.url), ASKED)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    with pytest.raises(ApiError, match="600 tokens"):
        await everything(client, running.url)
    await running.close()


async def test_a_request_that_fails_in_the_engine_is_sent_again(client, script) -> None:
    """An engine that cannot sample causes neither a turn nor a reward."""
    from ostinato.engine.base import EngineError

    failing = iter([True, True, False, True, False])

    async def policy(request):
        if next(failing):
            raise EngineError("a decode step failed")
        return (3, 9)

    running = await serve_scripted(ScriptedEngine(policy))
    assert (await client.generate(always(running.url), ASKED)).ids == (3, 9)
    assert (await everything(client, running.url))[1].ids == (3, 9)
    await running.close()


async def test_an_engine_that_fails_inside_a_stream_is_continued(client, serve_lines) -> None:
    heard = []

    async def lines(asked):
        heard.append(tuple(asked["prompt_ids"]))
        if len(heard) == 1:
            yield {"id": 3, "logprob": -0.5, "version": 1}
            yield {"error": {"type": "EngineError", "message": "a decode step failed", "status": 503}}
        else:
            yield {"id": 9, "logprob": -0.25, "version": 2}
            yield {"ids": [9], "logprobs": [-0.25], "versions": [2], "finish": "stop"}

    _, completion = await everything(client, await serve_lines(lines))
    assert (completion.ids, completion.versions) == ((3, 9), (1, 2))
    assert heard == [(1, 2), (1, 2, 3)]


async def test_nonsense_of_an_engine_is_not_taken(serve_lines) -> None:
    async def lines(asked):
        yield {"ids": [3], "logprobs": [], "versions": [1], "finish": "stop"}

    client = EngineClient(patience_s=0.2)
    url = await serve_lines(lines)
    with pytest.raises(ApiError, match="the engine is away"):
        await client.generate(always(url), ASKED)
    with pytest.raises(ApiError, match="the engine is away"):
        await everything(client, url)
    await client.aclose()


async def test_an_absent_engine_is_a_503_with_a_time_to_retry(
    http: aiohttp.ClientSession, gateway_of
) -> None:
    url = await gateway_of(f"http://127.0.0.1:{free_port()}", engine_wait_s=0.1)
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}
    for stream in (False, True):
        async with http.post(url + "/v1/chat/completions", json=body | {"stream": stream}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert (await response.json())["error"]["code"] == "engine_unavailable"


async def test_a_turn_that_the_engine_cannot_sample_is_a_503_never_a_turn(
    http: aiohttp.ClientSession, gateway_of, store
) -> None:
    """The agent's session ends as INFRASTRUCTURE: it is void, and has no reward of zero."""
    from ostinato.engine.base import EngineError

    async def policy(request):
        raise EngineError("a decode step failed")

    running = await serve_scripted(ScriptedEngine(policy))
    url = await gateway_of(running.url, engine_wait_s=0.2)
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}
    for stream in (False, True):
        async with http.post(url + "/v1/chat/completions", json=body | {"stream": stream}) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert not any(store.turns(session.id) for session in store.sessions())
    await running.close()


async def test_requests_wait_while_the_engine_is_killed_and_started_again(
    http: aiohttp.ClientSession, gateway_of, serve_lines
) -> None:
    """The first engine dies holding a request; the next one listens at the same address."""
    port = free_port()
    asked = asyncio.Event()

    async def silent(_):
        asked.set()
        await asyncio.Event().wait()
        yield {}

    async def speaking(_):
        yield DONE

    stop_first = await serve_lines(silent, port, stoppable=True)
    url = await gateway_of(f"http://127.0.0.1:{port}")
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}

    async def ask(stream: bool) -> tuple[int, bytes]:
        async with http.post(url + "/v1/chat/completions", json=body | {"stream": stream}) as response:
            return response.status, await response.read()

    waiting = [asyncio.create_task(ask(stream)) for stream in (False, True)]
    await asked.wait()
    await stop_first()
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in waiting)
    await serve_lines(speaking, port)
    for status, answer in await asyncio.gather(*waiting):
        assert status == 200
        assert b'"finish_reason":"stop"' in answer.replace(b": ", b":")


async def test_all_requests_that_wait_go_to_the_engine_that_takes_the_place_of_theirs(
    http: aiohttp.ClientSession, gateway_of, serve_lines, store, script
) -> None:
    """Nobody else asks meanwhile, so the gateway itself must notice that its arms have changed."""
    asked = asyncio.Semaphore(0)

    async def silent(_):
        asked.release()
        await asyncio.Event().wait()
        yield {}

    port = free_port()
    stop_first = await serve_lines(silent, port, stoppable=True)
    url = await gateway_of(f"http://127.0.0.1:{port}", engine_wait_s=300.0)
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}]}

    async def ask(stream: bool) -> int:
        async with http.post(url + "/v1/chat/completions", json=body | {"stream": stream}) as response:
            await response.read()
            return response.status

    waiting = [asyncio.create_task(ask(stream)) for stream in (False, True)]
    for _ in waiting:
        await asked.acquire()
    await stop_first()
    running = await serve_scripted(ScriptedEngine(script))
    store.set_arms([Arm(name="main", version=3, share=1.0, engines=(running.url,))])
    assert await asyncio.gather(*waiting) == [200, 200]
    await running.close()


async def test_an_engine_is_asked_with_its_secret() -> None:

    async def policy(_: GenerateRequest) -> tuple[int, ...]:
        return (7, 9)

    running = await serve_scripted(ScriptedEngine(policy), secret="theirs")
    knows, other = EngineClient(1.0, "theirs"), EngineClient(1.0, "mine")
    assert (await knows.generate(always(running.url), ASKED)).ids == (7, 9)
    with pytest.raises(ApiError, match="OSTINATO_ENGINE_SECRET") as caught:
        await other.generate(always(running.url), ASKED)
    assert caught.value.status == 503
    for client in (knows, other):
        await client.aclose()
    await running.close()


async def test_a_stream_that_one_replica_breaks_goes_on_at_another(client, serve_lines) -> None:
    heard: list[tuple[str, list[int]]] = []

    async def dying(asked):
        heard.append(("dying", asked["prompt_ids"]))
        yield {"id": 5, "logprob": -1.0, "version": 1}

    async def living(asked):
        heard.append(("living", asked["prompt_ids"]))
        yield {"ids": [7, 9], "logprobs": [-3.0, -4.0], "versions": [1, 1], "finish": "stop"}

    first, second = await serve_lines(dying), await serve_lines(living)
    for session in range(40):  # each session has its own order of the two
        asked = replace(ASKED, session_id=str(session))
        events = [event async for event in client.stream(always(first, second), asked)]
        ids = events[-1].ids
        assert ids in {(5, 7, 9), (7, 9)}
        if ids == (5, 7, 9):
            assert heard[-2:] == [("dying", [1, 2]), ("living", [1, 2, 5])]
            break
    assert client.replicas.states()[first].away
    assert (await client.generate(always(first, second), asked)).ids == (7, 9)


async def test_the_health_check_finds_a_replica_that_is_gone(client, script) -> None:
    running, gone = await serve_scripted(ScriptedEngine(script)), f"http://127.0.0.1:{free_port()}"
    watching = asyncio.create_task(client.watch(lambda: [[running.url, gone], ["http://never.checked"]]))
    while not client.replicas.is_away(gone):
        await asyncio.sleep(0.01)
    assert client.replicas.states().keys() == {gone}
    watching.cancel()
    await running.close()


async def test_an_arm_without_an_engine_is_said_plainly(client) -> None:
    with pytest.raises(ApiError, match="no engine yet: `ostinato arms set` names one"):
        await client.generate(always(), ASKED)


async def test_an_engine_with_another_tokenizer_gets_no_request() -> None:
    async def policy(_: GenerateRequest) -> tuple[int, ...]:
        return (3, 9)

    async with AsyncExitStack() as stack:
        running = await serve_scripted(ScriptedEngine(policy, abilities=Abilities(tokenizer="theirs")))
        stack.push_async_callback(running.close)
        client = EngineClient(1.0, tokenizer="ours")
        stack.push_async_callback(client.aclose)
        with pytest.raises(ApiError, match=r"another tokenizer \(theirs.* with the same"):
            await client.generate(always(running.url), ASKED)
        same = EngineClient(1.0, tokenizer="theirs")
        stack.push_async_callback(same.aclose)
        assert (await same.generate(always(running.url), ASKED)).ids == (3, 9)


async def test_the_context_is_the_least_that_an_engine_says(client) -> None:
    async def policy(_: GenerateRequest) -> tuple[int, ...]:
        return (3, 9)

    async with AsyncExitStack() as stack:
        urls = []
        for context in (4096, 2048, 0):
            running = await serve_scripted(ScriptedEngine(policy, abilities=Abilities(context=context)))
            stack.push_async_callback(running.close)
            urls.append(running.url)
        gone = await serve_scripted(ScriptedEngine(policy))
        await gone.close()
        assert await client.context([*urls, gone.url]) == 2048
        assert await client.context([urls[2], gone.url]) == await client.context([]) == 0
