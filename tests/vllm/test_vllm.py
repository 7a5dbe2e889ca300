"""A real vLLM under the engine contract, and the defects that only vLLM can have; run by `make test-vllm`.

Covers engine/vllm/engine.py, engine/vllm/handover.py, engine/vllm/process.py, engine/vllm/worker.py and
engine/vllm/speculation.py.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import torch
from tests.engine.contract import EXACT, MAX_LEN, Contract, assert_exact, model
from tests.engine.toolbox import request
from tests.vllm.install import PYTHON, missing

from ostinato.engine.base import EngineError, LoadRefusedError
from ostinato.engine.http import create_app, serve
from ostinato.engine.loader import SyncLoader
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.model.checkpoint import save
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.types import Completion, Distribution, from_json, to_json

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    save(directory, model(1), Tokenizer.train(["calc.py"], 265), version=1)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    engine = await VllmEngine.start(
        checkpoint,
        tmp_path_factory.mktemp("vllm"),
        python=str(PYTHON),
        max_len=MAX_LEN,
        slots=16,
        arguments=("--max-num-batched-tokens", str(2 * MAX_LEN)),  # so that prompts have to wait for a step
        environment=ENVIRONMENT,
    )
    yield engine
    await engine.aclose()


class TestVllm(Contract):
    """The whole contract, on one server that lives through every test."""


async def test_a_prefix_of_an_older_version_is_not_reused(served: VllmEngine) -> None:
    """The keys of the old weights lie in vLLM's prefix cache; no new request may use them."""
    sent = request(5, length=100)
    assert_exact(sent, await served.generate(sent))
    version = served.version + 1
    await served.swap(version, model(version).state_dict())
    assert_exact(sent, await served.generate(sent))


async def test_a_small_change_is_served(served: VllmEngine) -> None:
    base = model(served.version)
    tensors = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    tensors["model.layers.1.mlp.experts.2.up_proj.weight"][3, 4] += 5.0
    base.load_state_dict(tensors)
    version = served.version + 1
    await served.swap(version, tensors)
    sent = request(6, length=60)
    reply = await served.generate(sent)
    with torch.no_grad():
        logits, _ = base(torch.tensor([sent.prompt_ids + reply.ids]))
    expected = torch.log_softmax(logits[0, 59:-1], -1).gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
    assert (expected - torch.tensor(reply.logprobs)).abs().max() < EXACT
    await served.swap(version + 1, model(version + 1).state_dict())


async def test_it_stands_behind_the_same_http_and_follows_the_store(
    served: VllmEngine, tmp_path: Path
) -> None:
    version = served.version + 1
    objects = Objects.open(tmp_path)
    Publisher(objects).anchor(version, model(version).state_dict())
    running = await serve(create_app(served, SyncLoader(served, Subscriber(objects))), "127.0.0.1", 0)
    sent = request(7)
    async with aiohttp.ClientSession(running.url) as session:
        async with session.post("/load", json={"version": version}) as response:
            assert (response.status, await response.json()) == (200, {"version": version})
        async with session.post("/generate", json=to_json(sent) | {"stream": True}) as response:
            lines = [json.loads(line) async for line in response.content]
        async with session.post("/load", json={"version": version + 1}) as response:
            assert response.status == 409
    reply = from_json(Completion, lines[-1])
    assert tuple(line["id"] for line in lines[:-1]) == reply.ids
    assert_exact(sent, reply)
    await running.close()


async def test_weights_that_were_damaged_on_their_way_are_refused(
    served: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = served.version
    monkeypatch.setattr("ostinato.engine.vllm.engine.digest", lambda _folder: "0" * 64)
    with pytest.raises(LoadRefusedError, match="the weights have digest"):
        await served.swap(version + 1, model(version + 1).state_dict())
    monkeypatch.undo()
    assert served.version == version
    sent = request(8)
    assert_exact(sent, await served.generate(sent))
    await served.swap(version + 1, model(version + 1).state_dict())
    assert_exact(sent, await served.generate(sent))


async def test_more_prompts_at_once_than_fit_one_step_are_all_answered(served: VllmEngine) -> None:
    """Every request has a seed. A prompt that a CPU computed in two parts would end the server."""
    sent = [request(100 + i, length=MAX_LEN - 20, max_tokens=4) for i in range(40)]
    replies = await asyncio.gather(*map(served.generate, sent))
    for one, reply in zip(sent, replies, strict=True):
        assert_exact(one, reply)


async def test_scores_under_speculation_are_right_or_never_trained_on(
    checkpoint: Path, tmp_path: Path
) -> None:
    """vLLM 0.32 returns -9,999 for some drafted tokens at temperatures above 0: the start finds it."""
    lookup = {"num_speculative_tokens": 5, "prompt_lookup_min": 1, "prompt_lookup_max": 8}
    speculation = json.dumps({"method": "ngram", **lookup})
    engine = await VllmEngine.start(
        checkpoint,
        tmp_path,
        python=str(PYTHON),
        max_len=MAX_LEN,
        slots=4,
        arguments=("--speculative-config", speculation),
        environment=ENVIRONMENT,
    )
    try:
        asked = [
            request(i, prompt_ids=(3, 1, 4, 1, 5) * 6, max_tokens=40, temperature=i % 2) for i in range(6)
        ]
        for sent in asked:
            got = await engine.generate(sent)
            if engine.abilities.logprobs:
                assert_exact(sent, got)
            else:
                assert got.distribution is Distribution.UNKNOWN
        assert engine.stats()["drafted"] > engine.stats()["accepted"] > 0
    finally:
        await engine.aclose()


async def test_when_the_server_dies_requests_say_so(served: VllmEngine) -> None:
    """The last test of the file, since it kills the server."""
    many = [asyncio.create_task(served.generate(request(i, max_tokens=110))) for i in range(64)]
    await asyncio.sleep(0.05)
    served.server.process.send_signal(signal.SIGKILL)
    ends = await asyncio.gather(*many, return_exceptions=True)
    failed = [end for end in ends if isinstance(end, BaseException)]
    assert failed, "64 at once are not over in a twentieth of a second"
    assert all(isinstance(error, EngineError) and "vLLM" in str(error) for error in failed)
    with pytest.raises(EngineError, match="vLLM"):
        await served.generate(request(2))
