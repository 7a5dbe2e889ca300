"""Turns and signals of one session, for the tests of this room."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from ostinato.harness.profiles.profile import CORE
from ostinato.model.families import HermesRenderer, assistant_message, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import Completion, FinishReason, Signal, SignalKind, Turn, TurnKind

ENDED = 101.0
"""The end of every turn that `turn` makes."""


def turn(index: int = 0, broken: str | None = None, kind: TurnKind = TurnKind.MAIN, tokens: int = 1) -> Turn:
    completion = Completion(
        ids=(3,) * tokens, logprobs=(-0.1,) * tokens, versions=(1,) * tokens, finish=FinishReason.STOP
    )
    return Turn(
        session_id="s",
        index=index,
        segment=0,
        arm="main",
        prompt_ids=(1, 2),
        completion=completion,
        started_at=100.0,
        latency_s=1.0,
        broken=broken,
        kind=kind,
    )


def signal(
    kind: SignalKind,
    value: float | str = 1.0,
    at: float = 0.0,
    edit: str | None = None,
    turn: int | None = None,
) -> Signal:
    return Signal(session_id="s", kind=kind, value=value, observed_at=at, edit=edit, turn=turn)


@cache
def renderer() -> HermesRenderer:
    """The renderer of a small tokenizer."""
    corpus = ["def alpha(a, b):\n    return a + b\n", "all tests pass", "pytest -q"]
    return HermesRenderer(Tokenizer.train(corpus, 420, skeletons(CORE.system, CORE.tools)))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def session(
    *steps: tuple[str, Sequence[str]], kinds: Mapping[int, TurnKind] = MappingProxyType({})
) -> list[Turn]:
    """Return the turns of a session as a gateway records them: the agent's texts and its calls' results.

    Several results answer several calls; an unreadable reply is answered as by a user.
    """
    made = renderer()
    prompt = made.render([{"role": "system", "content": "s"}, {"role": "user", "content": "fix it"}])
    turns = []
    for index, (text, results) in enumerate(steps):
        parsed = made.parse_text(text)
        ids = (
            made.say(assistant_message(parsed))
            if parsed.broken is None
            else [*made.tokenizer.encode(text), made.stop_ids[0]]
        )
        completion = Completion(
            ids=tuple(ids), logprobs=(-0.1,) * len(ids), versions=(1,) * len(ids), finish=FinishReason.STOP
        )
        first = turn(index, parsed.broken, kinds.get(index, TurnKind.MAIN))
        turns.append(replace(first, prompt_ids=tuple(prompt), completion=completion))
        role = "tool" if parsed.tool_calls else "user"
        prompt = [*prompt, *ids, *made.extend([{"role": role, "content": result} for result in results])]
    return turns
