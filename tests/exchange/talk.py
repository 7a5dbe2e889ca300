"""Conversations as the gateway records them: ids that grow, with one renderer."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ostinato.harness.profiles.profile import profile
from ostinato.model.families import HermesRenderer, load_renderer, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.types import (
    Completion,
    Distribution,
    Ending,
    FinishReason,
    Reward,
    RewardPart,
    Session,
    Source,
    Turn,
)

CORE = profile("core")
READ = {"name": "read", "arguments": '{"path": "calc.py"}'}
CALL = {"id": "call_0_0", "type": "function", "function": READ}
STORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "add subtracts"},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_0_0", "content": "return a - b"},
    {"role": "assistant", "content": "Fixed."},
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "content": "Welcome."},
]  # fmt: skip


@cache
def renderer() -> HermesRenderer:
    corpus = ["def f(a, b):\n    return a - b\n", "I look. Fixed. Welcome."]
    return HermesRenderer(Tokenizer.train(corpus, 420, skeletons(CORE.system, CORE.tools)))


def checkpoint(folder: Path) -> Path:
    renderer().tokenizer.save(folder)
    assert load_renderer(folder).stop_ids == renderer().stop_ids
    return folder


def turns(
    id: str,
    story: Sequence[Mapping[str, Any]] = STORY,
    *,
    tools: Sequence[Mapping[str, Any]] = CORE.tools,
    segment: int = 0,
    first: int = 0,
    **rest: Any,
) -> list[Turn]:
    """Return a turn for each answer of a conversation, token for token as a gateway extends it."""
    by, found, ids, said = renderer(), list[Turn](), list[int](), 0
    for place, message in enumerate(story):
        if message["role"] != "assistant":
            continue
        new = story[said:place]
        ids = [*ids, *by.extend(new)] if found else by.render(new, tools)
        out, said = by.say(message), place + 1
        completion = Completion(
            ids=tuple(out),
            logprobs=(-0.5,) * len(out),
            versions=(3,) * len(out),
            finish=FinishReason.STOP,
            distribution=Distribution.TEMPERED,
        )
        number = first + len(found)
        found.append(Turn(
            session_id=id, index=number, segment=segment, arm="main", prompt_ids=tuple(ids),
            started_at=2.0 + number, latency_s=0.5, completion=completion, **rest,
        ))  # fmt: skip
        ids = [*ids, *out]
    return found


def record(
    store: Store, id: str, some: Sequence[Turn] | None = None, total: float | None = None, **rest: Any
) -> None:
    """Record one ended session of ada, who consented, with a reward where there is a total."""
    fields: dict[str, Any] = {
        "source": Source.LIVE,
        "user": "ada",
        "arm": "main",
        "consent": True,
        "harness": "9f",
    }
    fields |= {"task_id": None, "started_at": 1.0, "ending": Ending.FINISHED, **rest}
    store.record(turns(id) if some is None else some, (), [Session(id=id, **fields)])
    if total is not None:
        store.add_rewards(
            [Reward(session_id=id, definition="d", parts=(RewardPart(name="kept", value=total),))]
        )
