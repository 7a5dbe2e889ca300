"""The gateway as a process: started, killed, refused.

Covers gateway/server.py and gateway/config.py.
"""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp

from ostinato.store import Store
from ostinato.types import Arm

HI = {"role": "user", "content": "hi"}


def refused(*options: str) -> str:
    """Return the one line that a gateway prints when it cannot start."""
    command = [sys.executable, "-m", "ostinato.gateway.server", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


async def ask(http: aiohttp.ClientSession, url: str, *messages, **headers: str) -> tuple[int, dict]:
    body = {"model": "ostinato", "messages": messages}
    async with http.post(url + "/v1/chat/completions", json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_killed_under_load_it_lost_nothing_acknowledged(launch, http, engine, store: Store) -> None:
    acknowledged: dict[str, dict] = {}
    first = await launch()

    async def developer(name: str) -> None:
        messages: list[dict] = [HI]
        try:
            while True:
                status, body = await ask(http, first.url, *messages, **{"X-Session-Id": name})
                assert status == 200
                extra = body["ostinato"]
                acknowledged[f"{name}/{extra['turn']}"] = body
                messages += [body["choices"][0]["message"], HI]
        except aiohttp.ClientError:
            return

    load = [asyncio.create_task(developer(f"s{i}")) for i in range(8)]
    while len(acknowledged) < 80:
        await asyncio.sleep(0.01)
    first.process.kill()
    await asyncio.gather(*load)
    second = await launch()
    recorded = {t.id: t for turns in store.turns_of([f"s{i}" for i in range(8)]).values() for t in turns}
    assert acknowledged.keys() <= recorded.keys()
    for id_, body in acknowledged.items():
        assert body["usage"]["completion_tokens"] == len(recorded[id_].completion.ids)
    await _goes_on(http, second.url, store, acknowledged)


async def _goes_on(http, url: str, store: Store, acknowledged: dict[str, dict]) -> None:
    """A session goes on after a restart in the same segment, with the same ids."""
    turns = store.turns("s0")
    messages: list[dict] = []
    for i in range(len(turns)):
        answer = acknowledged.get(f"s0/{i}")
        message = answer["choices"][0]["message"] if answer else {"role": "assistant", "content": "done"}
        messages += [HI, message]
    status, body = await ask(http, url, *messages, HI, **{"X-Session-Id": "s0"})
    assert (status, body["ostinato"]["turn"], body["ostinato"]["segment"]) == (200, len(turns), 0)
    kept = turns[-1].prompt_ids + turns[-1].completion.ids
    assert store.turns("s0")[-1].prompt_ids[: len(kept)] == kept


async def test_it_ends_cleanly_at_a_signal(launch, http, engine, store: Store) -> None:
    gateway = await launch()
    await ask(http, gateway.url, HI, **{"X-Session-Id": "s1"})
    gateway.process.terminate()
    assert await asyncio.wait_for(gateway.process.wait(), 300) == 0
    assert len(store.turns("s1")) == 1


async def test_who_still_waits_when_it_ends_is_told_to_ask_again(launch, http, serve_lines, store) -> None:
    asked = asyncio.Event()

    async def silent(_):
        asked.set()
        await asyncio.Event().wait()
        yield {}

    store.set_arms([Arm(name="main", version=3, share=1.0, engines=(await serve_lines(silent),))])
    gateway = await launch()
    waiting = asyncio.create_task(ask(http, gateway.url, HI))
    await asked.wait()
    gateway.process.terminate()
    status, body = await waiting
    assert (status, body["error"]["code"]) == (503, "stopping")
    assert await gateway.process.wait() == 0


def test_a_failed_start_prints_one_line(checkpoint: Path, tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "new.db")]
    good = [*store, "--checkpoint", str(checkpoint)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused(*good, "--port", port).startswith(f"gateway: cannot listen on 127.0.0.1:{port}: ")
    assert "tokenizer.json" in refused(*store, "--checkpoint", str(tmp_path / "none"))
    assert "no/such" in refused("--store", str(tmp_path / "no/such/file"), "--checkpoint", str(checkpoint))


async def test_two_gateways_on_one_store_acknowledge_only_what_is_stored(
    launch, engine, script, http, store: Store
) -> None:
    """Sessions use either gateway, and half of them send requests to both at once."""
    script.say = lambda _: f"answer {len(script.asked)}"
    urls = [(await launch()).url for _ in range(2)]
    acknowledged: dict[str, str] = {}
    refused = []

    async def told(which: int, name: str, messages: list[dict]) -> dict:
        status, body = await ask(http, urls[which % 2], *messages, **{"X-Session-Id": name})
        if status != 200:
            assert (status, body["error"]["code"]) == (503, "turn_taken"), body
            refused.append(name)
            return {"role": "assistant", "content": "?"}
        message: dict = body["choices"][0]["message"]
        id_ = f"{name}/{body['ostinato']['turn']}"
        assert id_ not in acknowledged, "two answers under one id"
        acknowledged[id_] = message["content"]
        return message

    async def alternating(name: str) -> None:
        messages: list[dict] = [HI]
        for i in range(8):
            messages += [await told(i, name, messages), HI]

    async def both_at_once(name: str) -> None:
        for _ in range(8):
            await asyncio.gather(told(0, name, [HI]), told(1, name, [HI]))

    names = [f"s{i}" for i in range(8)]
    await asyncio.gather(*(alternating(n) if i % 2 else both_at_once(n) for i, n in enumerate(names)))
    recorded = {t.id: t for turns in store.turns_of(names).values() for t in turns}
    stored = {
        id_: script.renderer.tokenizer.decode(turn.completion.ids[:-1]) for id_, turn in recorded.items()
    }
    assert stored == acknowledged
    assert not [name for name in refused if int(name[1:]) % 2], "one turn after the other is never refused"
    assert all(turn.segment == 0 for turn in store.turns("s1")), "and goes on in its segment, id for id"
