"""A shadow asks both engines and leaves nothing behind but its verdict."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rewards.follow_ups.test_read import TOKENIZER
from tests.store.builders import session, turn

from ostinato.engine.http import Running
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.gateway.upstream import EngineClient
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import LiveConfig
from ostinato.loop.run import START, Run
from ostinato.loop.stages import shadow as module
from ostinato.loop.stages.shadow import EACH, recorded_requests, shadow
from ostinato.store import Store
from ostinato.types import Arm, Decision, Ending, GenerateRequest, Source

WORDS = TOKENIZER.encode("a")


def recorded(tmp_path: Path) -> Store:
    """Twelve people, of whom the last did not agree, with six turns each."""
    store = Store.open(tmp_path / "store.db")
    for number in range(12):
        id, user, consent = f"s{number}", f"p{number}", number < 11
        store.accounts.set_consent(user=user, granted=consent, by=user)
        about = session(id, user=user, source=Source.LIVE, ending=Ending.FINISHED, started_at=float(number))
        turns = [replace(turn(index, id), segment=index, prompt_ids=tuple(WORDS)) for index in range(6)]
        store.record(turns, [], [replace(about, consent=consent)])
    return store


async def engine(tokens: int) -> Running:
    """An engine that says so many tokens and stops; none at all fails each request."""

    async def policy(request: GenerateRequest) -> Sequence[int]:
        if not tokens:
            raise RuntimeError("out of memory")
        return (*WORDS * tokens, request.stop_ids[0])

    return await serve_scripted(ScriptedEngine(policy))  # type: ignore[arg-type]


def test_only_people_who_agreed_are_asked_again_and_no_session_stands_for_all(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    found = recorded_requests(store, 20)
    assert len(found) == 20 and "p11" not in {user for user, _ in found}
    assert max(sum(one.session_id == other.session_id for _, other in found) for _, one in found) == EACH
    store.close()


@pytest.mark.parametrize(
    ("tokens", "decision", "word"),
    [
        (20, Decision.ADMIT, "nothing wrong"),
        (0, Decision.ROLL_BACK, "failed"),
        (60, Decision.ROLL_BACK, "length"),
    ],
)
async def test_a_candidate_is_compared_on_the_same_requests_and_nothing_else_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int, decision: Decision, word: str
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    monkeypatch.setitem(
        module.compare_shadow.__globals__["LIMITS"], "latency", 5.0
    )  # it is the machine's here
    run = Run(directory=tmp_path)
    TOKENIZER.save(run.checkpoint(START))
    store = recorded(tmp_path)
    champion, candidate = await engine(20), await engine(tokens)
    store.set_arms([Arm(name="champion", version=1, share=1.0, engines=(champion.url,))])
    before = store.sessions(), store.turns_of([f"s{number}" for number in range(12)])

    @asynccontextmanager
    async def serving(arm: Arm) -> AsyncIterator[Running]:
        assert arm.share == 0.0
        yield candidate

    resources: Any = SimpleNamespace(
        config=RunConfig(live=LiveConfig(shadow_requests=40)),
        run=run,
        store=store,
        engines=lambda patience_s: EngineClient(patience_s, ""),
        serving=serving,
        show=SimpleNamespace(
            say=lambda text: None,
            stage=lambda name, total: nullcontext(SimpleNamespace(more=lambda: None)),
        ),
    )
    shadowed = await shadow(resources, 1, 2)
    assert (shadowed.decision, shadowed.requests) == (decision, 40) and word in shadowed.reason
    assert (store.sessions(), store.turns_of([f"s{number}" for number in range(12)])) == before
    assert [verdict.decision for verdict in store.verdicts()] == [decision]
    await champion.close()
    await candidate.close()
    store.close()
