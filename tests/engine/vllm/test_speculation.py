"""Log-probabilities under vLLM's speculation are compared with plain ones; a server answers as vLLM does.

Covers engine/vllm/speculation.py. The real vLLM is in tests/vllm.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ostinato.engine.base import EngineError
from ostinato.engine.config import EngineServerConfig
from ostinato.engine.http import serve
from ostinato.engine.vllm.process import TOKENS, VllmServer
from ostinato.engine.vllm.speculation import doubt, draft_counts, drafting, speculates, trial
from ostinato.types import Completion, FinishReason

PLAIN = -1.5
"""The log-probability that the server computes without drafts."""
METRICS = """\
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 9.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 3.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 4.0
"""


@asynccontextmanager
async def vllm(metrics: str = METRICS, *, short: bool = False) -> AsyncIterator[VllmServer]:
    """A server with these metrics; `short` leaves out log-probabilities."""

    async def tell(_: web.Request) -> web.Response:
        return web.Response(text=metrics)

    async def score(request: web.Request) -> web.Response:
        ids = (await request.json())["token_ids"]
        rows: list[Any] = [None, *({str(token): {"logprob": PLAIN}} for token in ids[1:])]
        return web.json_response({"prompt_logprobs": None if short else rows})

    app = web.Application()
    app.router.add_get("/metrics", tell)
    app.router.add_post(TOKENS, score)
    running = await serve(app, "127.0.0.1", 0)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "", start_new_session=True)
    server = VllmServer(process, running.url, Path())
    try:
        yield server
    finally:
        await server.close()
        await running.close()


def completion(logprob: float) -> Completion:
    return Completion(ids=(7, 8), logprobs=(logprob,) * 2, versions=(1, 1), finish=FinishReason.LENGTH)


async def test_what_was_drafted_and_accepted_is_summed_over_engines() -> None:
    async with vllm() as server:
        assert await draft_counts(server) == {"drafted": 12.0, "accepted": 4.0}
    async with vllm("") as server:
        assert await draft_counts(server) == {"drafted": 0.0, "accepted": 0.0}


async def test_equal_scores_raise_no_doubt_and_others_do() -> None:
    async with vllm() as server:
        assert await doubt(server, trial(100), completion(PLAIN - 0.005), "float32") == ""
        for wrong, dtype in ((-9999.0, "bfloat16"), (PLAIN - 0.1, "float32")):
            why = await doubt(server, trial(100), completion(wrong), dtype)
            assert f"differ from plain ones by up to {PLAIN - wrong:.2f}" in why
        assert await doubt(server, trial(100), completion(PLAIN - 0.1), "bfloat16") == ""


async def test_nothing_compared_is_nothing_trusted() -> None:
    async with vllm("") as server:
        assert "no token of the trial was drafted" in await doubt(
            server, trial(100), completion(PLAIN), "float32"
        )
    async with vllm(short=True) as server:
        with pytest.raises(EngineError, match="0 log-probabilities of a prompt of 34 tokens"):
            await doubt(server, trial(100), completion(PLAIN), "float32")


def test_the_trial_fits_into_any_context() -> None:
    for room in (2, 20, 60, 5000):
        asked = trial(room)
        assert len(asked.prompt_ids) + asked.max_tokens <= room


def test_any_method_of_speculation_is_recognised() -> None:
    assert speculates(drafting(5)) and speculates(("--speculative-config={}",))
    assert not speculates(("--seed=1",))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"draft_tokens": 0}, "draft_tokens is 0: need at least 1, or draft none"),
        ({"backend": "remote", "remote": "http://x", "draft": "suffix"}, "drafts as it was started"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        EngineServerConfig(checkpoint=Path("start"), **fields)
