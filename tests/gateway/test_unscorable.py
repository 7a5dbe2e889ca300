"""The settings of every turn are recorded, and what the trainer cannot score is counted by its reason.

Each case goes through the gateway, the engine's wire, the store and the credit of a session.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import KEY, Script, serving

from ostinato.engine.base import Token
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.model.families import Renderer
from ostinato.rollout.credit import Credited, samples
from ostinato.store import Ledger, Store
from ostinato.types import (
    Abilities,
    Arm,
    Completion,
    Distribution,
    GenerateRequest,
    Sampling,
    State,
    Structure,
    StructureKind,
)

ABLE = Abilities(
    model="all",
    sampling=frozenset(
        ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
    ),
    structures=frozenset(kind.value for kind in StructureKind),
)
OBJECT = Structure(kind=StructureKind.JSON_OBJECT)
REASONS: list[tuple[dict[str, Any], Sampling, str | None]] = [
    ({}, Sampling(), None),
    ({"temperature": 0.25}, Sampling(temperature=0.25), None),
    ({"temperature": 0}, Sampling(temperature=0.0), "sampled greedily"),
    ({"top_p": 0.9}, Sampling(top_p=0.9), "sampled with top_p"),
    ({"top_k": 20}, Sampling(top_k=20), "sampled with top_k"),
    ({"min_p": 0.1}, Sampling(min_p=0.1), "sampled with min_p"),
    ({"presence_penalty": 1}, Sampling(presence_penalty=1.0), "sampled with presence_penalty"),
    ({"frequency_penalty": 1}, Sampling(frequency_penalty=1.0), "sampled with frequency_penalty"),
    ({"repetition_penalty": 1.5}, Sampling(repetition_penalty=1.5), "sampled with repetition_penalty"),
    ({"response_format": {"type": "json_object"}}, Sampling(structure=OBJECT), "sampled under a json_object"),
]


class RawEngine(ScriptedEngine):
    """Its log-probabilities are of the model's own distribution, as vLLM gives them by default."""

    async def generate(self, request: GenerateRequest) -> Completion:
        return replace(await super().generate(request), distribution=Distribution.MODEL)

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        async for event in super().stream(request):
            yield replace(event, distribution=Distribution.MODEL)


@pytest.fixture
async def serve(store: Store, renderer: Renderer, script: Script) -> AsyncIterator[Any]:
    """Return a function that starts a gateway before an engine, and returns a client of it."""
    opened: list[Any] = []

    async def start(engine: ScriptedEngine) -> aiohttp.ClientSession:
        running = await serve_scripted(engine)
        store.set_arms([Arm(name="main", version=3, share=1.0, engines=(running.url,))])
        gateway = serving(store, renderer)
        url = await gateway.__aenter__()
        http = aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {KEY}", "X-Session-Id": "s1"})
        opened.extend((running.close, lambda: gateway.__aexit__(None, None, None), http.close))
        return http

    yield start
    for close in reversed(opened):
        await close()


async def ask(http: aiohttp.ClientSession, **more: Any) -> tuple[int, str]:
    body = {"model": "ostinato", "messages": [{"role": "user", "content": "hi"}], **more}
    async with http.post("/v1/chat/completions", json=body) as response:
        return response.status, await response.text()


def counted(store: Store) -> dict[str, int]:
    """Return the reasons of the session's untrainable turns, as the ledger counts them for the report."""
    ledger = Ledger(store)
    rows = samples(ledger, Credited(session_id="s1", turns=store.turns("s1"), advantage=1.0))
    reasons = ledger.reasons(State.UNTRAINABLE)
    assert bool(rows) != bool(reasons)
    return reasons


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("body", "sampling", "reason"), REASONS, ids=lambda case: str(case)[:30])
async def test_what_the_trainer_cannot_score_is_counted_by_reason(
    body: dict[str, Any],
    sampling: Sampling,
    reason: str | None,
    stream: bool,
    *,
    serve: Any,
    script: Script,
    store: Store,
) -> None:
    http = await serve(ScriptedEngine(script, ABLE))
    assert (await ask(http, **body, seed=5, stream=stream))[0] == 200
    (turn,) = store.turns("s1")
    assert turn.sampling == replace(sampling, seed=5) == script.asked[0].sampling
    assert turn.completion.distribution is sampling.drawn_from
    assert counted(store) == ({} if reason is None else {reason: 1})


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"stop": "one"}], ids=["whole", "streamed", "cut"])
async def test_probabilities_of_another_temperature_are_counted(
    more: dict[str, Any], serve: Any, script: Script, store: Store
) -> None:
    http = await serve(RawEngine(script))
    assert (await ask(http, temperature=0.5, **more))[0] == 200
    assert counted(store) == {"its log-probabilities are not of the temperature it was sampled at": 1}


async def test_at_temperature_one_the_models_own_distribution_is_the_one_drawn_from(
    serve: Any, script: Script, store: Store
) -> None:
    http = await serve(RawEngine(script))
    assert (await ask(http))[0] == 200
    assert counted(store) == {}


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"stop": "one"}], ids=["whole", "streamed", "cut"])
async def test_an_engine_without_probabilities_is_served_and_counted(
    more: dict[str, Any], serve: Any, script: Script, store: Store
) -> None:
    http = await serve(ScriptedEngine(script, Abilities(logprobs=False)))
    assert (await ask(http, **more))[0] == 200
    assert counted(store) == {"its engine gave no log-probabilities": 1}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"top_p": 0.9, "min_p": 0.1}, "top_p, min_p"),
        ({"response_format": {"type": "json_object"}}, "json_object"),
    ],
)
async def test_a_setting_that_the_engine_cannot_honour_is_refused_by_its_name(
    body: dict[str, Any], named: str, stream: bool, *, serve: Any, script: Script, store: Store
) -> None:
    http = await serve(ScriptedEngine(script, Abilities(model="small")))
    status, text = await ask(http, **body, stream=stream)
    assert status == 400 and f"the engine 'small' cannot sample with {named}" in text
    assert store.turns("s1") == [] and script.asked == []
