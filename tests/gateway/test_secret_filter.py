"""No secret reaches the store, and no turn that held one is trained on."""

import random
from pathlib import Path

import pytest
from fuzz.planted_secrets import FORMS
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.secret_filter import WITHHELD, SecretFilter
from ostinato.model.families import Renderer
from ostinato.store import Store
from ostinato.train.samples import UntrainableError, samples_of
from ostinato.types import Completion, FinishReason, Turn

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
HI = {"role": "user", "content": "hi"}
TOLD = {"role": "user", "content": f"log in with {TOKEN}, please"}


def everything(store: Store) -> bytes:
    """Return all bytes of the store's files, and its token ids as text."""
    return b"".join(
        path.read_bytes() for path in Path(str(store.database.url.database)).parent.glob("store.db*")
    )


def said(store: Store, renderer: Renderer, session: str = "s1") -> str:
    turns = store.turns(session)
    return "".join(renderer.tokenizer.decode(t.prompt_ids + t.completion.ids) for t in turns)


def turn_of(renderer: Renderer, prompt: str, answer: str) -> Turn:
    ids = tuple(renderer.tokenizer.encode(answer))
    completion = Completion(
        ids=ids, logprobs=(-0.5,) * len(ids), versions=(1,) * len(ids), finish=FinishReason.STOP
    )
    return Turn(
        session_id="s1",
        index=0,
        segment=0,
        arm="m",
        prompt_ids=tuple(renderer.tokenizer.encode(prompt)),
        completion=completion,
        started_at=0.0,
        latency_s=0.0,
    )


async def test_a_secret_is_withheld_from_the_record_not_from_the_model(
    chat, script, store: Store, renderer
) -> None:
    asked = []
    script.say = lambda prompt: asked.append(prompt) or "done"
    status, body, _ = await chat(TOLD, headers={"X-Session-Id": "s1"})
    assert (status, body["ostinato"]["untrainable"]) == (200, WITHHELD)
    assert TOKEN in asked[0]
    assert TOKEN not in said(store, renderer) and "please" in said(store, renderer)
    await chat(TOLD, body["choices"][0]["message"], HI, headers={"X-Session-Id": "s1"})
    first, second = store.turns("s1")
    assert TOKEN not in said(store, renderer) and TOKEN in asked[1]
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    with pytest.raises(UntrainableError):
        samples_of([first, second], 1.0)


async def test_a_secret_in_a_tool_is_withheld_too(chat, store: Store, renderer, read_tool) -> None:
    told = {**read_tool, "function": {**read_tool["function"], "description": f"reads, with {TOKEN}"}}
    asked = {"role": "user", "content": "hi"}
    status, body, _ = await chat(asked, tools=[told], headers={"X-Session-Id": "s1"})
    assert (status, body["ostinato"]["untrainable"]) == (200, WITHHELD)
    assert TOKEN not in said(store, renderer) and "reads, with" in said(store, renderer)


async def test_turns_before_the_secret_stay_trainable(chat, store: Store) -> None:
    _, body, _ = await chat(HI, headers={"X-Session-Id": "s1"})
    await chat(HI, body["choices"][0]["message"], TOLD, headers={"X-Session-Id": "s1"})
    assert [turn.untrainable for turn in store.turns("s1")] == [None, WITHHELD]


async def test_a_secret_in_the_models_output_is_withheld_too(chat, script, store: Store, renderer) -> None:
    script.say = lambda prompt: f"the token is {TOKEN}"
    _, body, _ = await chat(HI, headers={"X-Session-Id": "s1"})
    assert TOKEN in body["choices"][0]["message"]["content"]
    (turn,) = store.turns("s1")
    assert turn.untrainable == WITHHELD and TOKEN not in said(store, renderer)
    assert len(turn.completion.ids) == body["usage"]["completion_tokens"]
    assert 0.0 in turn.completion.logprobs


async def test_replaced_it_never_reaches_the_model_and_tokens_stay_exact(
    http, script, engine, store: Store, gateway_of
) -> None:
    asked, renderer = [], script.renderer
    script.say = lambda prompt: asked.append(prompt) or "done"
    url = await gateway_of(engine, secrets="replace")
    messages: list[dict] = [TOLD]
    for _ in range(2):
        body = {"model": "ostinato", "messages": messages}
        async with http.post(
            url + "/v1/chat/completions", json=body, headers={"X-Session-Id": "s1"}
        ) as response:
            told = await response.json()
        messages += [told["choices"][0]["message"], HI]
    assert not [prompt for prompt in asked if TOKEN in prompt]
    assert "[redacted github_token]" in said(store, renderer)
    turns = store.turns("s1")
    assert [turn.untrainable for turn in turns] == [None, None]
    assert len(samples_of(turns, 1.0)) == 1


def test_every_form_is_hidden_token_by_token(renderer: Renderer) -> None:
    secret_filter, rng = SecretFilter(renderer), random.Random(3)
    for name, draw in FORMS.items():
        secret = draw(rng)
        chat = ChatRequest(model="ostinato", messages=({"role": "tool", "content": f'x = "{secret}" # é'},))
        turn = turn_of(renderer, f'before é x = "{secret}" # é after {secret}', "fine")
        marked, stored = secret_filter.mark(turn, chat)
        text = renderer.tokenizer.decode(stored.prompt_ids)
        assert marked.prompt_ids == turn.prompt_ids and marked.untrainable == WITHHELD
        assert secret not in text and len(stored.prompt_ids) == len(turn.prompt_ids), name
        assert text.startswith("before é x") and "é after" in text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_a_turn_without_a_secret_is_stored_as_it_is(renderer: Renderer, text: str) -> None:
    turn = turn_of(renderer, text, "fine")
    chat = ChatRequest(model="ostinato", messages=({"role": "user", "content": text},))
    marked, stored = SecretFilter(renderer).mark(turn, chat)
    assert (stored is turn) == (marked is turn)


def test_a_message_is_searched_once(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr("ostinato.gateway.secret_filter.find", lambda text: searched.append(text) or [])
    censor = SecretFilter(renderer)
    messages = tuple({"role": "user", "content": str(i)} for i in range(20))
    for n in range(1, 20):
        censor.mark(turn_of(renderer, "p", "a"), ChatRequest(model="m", messages=messages[:n]))
    assert sorted(searched) == sorted([*(str(i) for i in range(19)), "a"])
