"""vLLM's own speculation: the option for it, what came of its drafts, and whether its scores hold."""

import json
import re
from collections.abc import Sequence
from typing import Any

from ostinato.engine.base import EngineError
from ostinato.engine.vllm.process import TOKENS, VllmServer
from ostinato.types import Completion, GenerateRequest

OPTION = "--speculative-config"
COUNTERS = {"drafted": "draft_tokens", "accepted": "accepted_tokens"}
"""The names of our counters in those of vLLM's metrics."""
REPEATED = (1, 2, 3, 4) * 8
"""A prompt whose continuation is drafted."""
CHECKED = 48
"""The sampled tokens whose log-probabilities are compared."""
APART = {"float32": 0.01, "bfloat16": 0.5}
"""The largest difference between two computations of one log-probability that rounding explains."""


def drafting(tokens: int) -> tuple[str, str]:
    """Return the arguments by which vLLM looks up so many tokens at a time in the sequence itself."""
    lookup = {"num_speculative_tokens": tokens, "prompt_lookup_min": 2, "prompt_lookup_max": 8}
    return OPTION, json.dumps({"method": "ngram", **lookup})


def speculates(arguments: Sequence[str]) -> bool:
    """Return whether the arguments make vLLM draft tokens, by whatever method."""
    return any(argument.startswith(OPTION) for argument in arguments)


async def draft_counts(server: VllmServer) -> dict[str, float]:
    """Return how many tokens were drafted and accepted since the start. Raises EngineError."""
    text = await server.text("/metrics")
    found = dict.fromkeys(COUNTERS, 0.0)
    for ours, theirs in COUNTERS.items():
        for value in re.findall(rf"^vllm:spec_decode_num_{theirs}_total{{.*}} (\S+)$", text, re.MULTILINE):
            found[ours] += float(value)
    return found


def trial(room: int) -> GenerateRequest:
    """Return the request whose completion is checked, in a context of `room` tokens."""
    prompt = REPEATED[: max(1, room - CHECKED)]
    return GenerateRequest(
        request_id="",
        session_id="",
        prompt_ids=prompt,
        stop_ids=(),
        max_tokens=min(CHECKED, room - len(prompt)),
    )


async def doubt(server: VllmServer, asked: GenerateRequest, got: Completion, dtype: str) -> str:
    """Return why the log-probabilities of a drafted completion are not those of a plain forward pass.

    Empty when they are. vLLM computes those of a prompt without drafts, so the completion is sent as one.
    """
    if not (await draft_counts(server))["drafted"]:
        return "no token of the trial was drafted, so that nothing was compared"
    sampling: dict[str, Any] = {
        "max_tokens": 1,
        "temperature": 1.0,
        "prompt_logprobs": 0,
        "detokenize": False,
    }
    ids = [*asked.prompt_ids, *got.ids]
    response = await server.post(TOKENS, {"token_ids": ids, "sampling_params": sampling, "stream": False})
    rows = response.get("prompt_logprobs") or []
    if len(rows) != len(ids):
        raise EngineError(f"vLLM, {TOKENS}: {len(rows)} log-probabilities of a prompt of {len(ids)} tokens")
    plain = [row[str(token)]["logprob"] for row, token in list(zip(rows, ids, strict=True))[-len(got.ids) :]]
    apart = max(abs(a - b) for a, b in zip(plain, got.logprobs, strict=True))
    if apart <= APART[dtype]:
        return ""
    return f"log-probabilities under speculation differ from plain ones by up to {apart:.2f}"
