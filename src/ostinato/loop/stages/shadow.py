"""The shadow stage: recorded requests go to both engines, past the gateway, and are recorded nowhere.

So no answer can reach a person, a reward or the trainer. Only requests of people who agreed to training are
used, since their prompts are read.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ostinato.deploy.shadow import ShadowAnswer, ShadowPair, compare_shadow
from ostinato.gateway.errors import ApiError
from ostinato.gateway.upstream import always
from ostinato.loop.base import Engines, Resources
from ostinato.loop.results import Shadowed
from ostinato.loop.run import START
from ostinato.model.families import load_renderer
from ostinato.model.families.base import Renderer
from ostinato.rewards.signals import without_side_calls
from ostinato.store import Store
from ostinato.store.pages import latest_sessions
from ostinato.types import Arm, Ending, FinishReason, GenerateRequest, Turn, new_id

EACH = 4
"""The most requests of one session, so that a long one does not stand for all."""
AT_ONCE = 4
"""The requests that are under way at a time."""
PATIENCE_S = 5.0
"""The time after which an engine that does not answer has failed."""
LEAST_TOKENS = 64
"""The least limit of an answer; it is else four times what the champion sampled when it was recorded."""


async def shadow(resources: Resources, champion: int, candidate: int) -> Shadowed:
    """Let the candidate answer what people asked the champion; return and record the comparison."""
    recorded = recorded_requests(resources.store, resources.config.live.shadow_requests)
    renderer = load_renderer(resources.run.checkpoint(START))
    arm = Arm(name=f"shadow-{candidate}", version=candidate, share=0.0, engines=())
    client, turn_to_ask = resources.engines(PATIENCE_S), asyncio.Semaphore(AT_ONCE)
    try:
        async with resources.serving(arm) as engine:
            served = next(a.engines for a in resources.store.arms() if a.version == champion and a.engines)
            with resources.show.stage(f"shadow of version {candidate}", total=len(recorded)) as bar:

                async def pair(user: str, turn: Turn) -> ShadowPair:
                    """Ask both at the same moment, so that both find the machine as busy."""
                    async with turn_to_ask:
                        sides = (_answer(client, renderer, each, turn) for each in (served, (engine.url,)))
                        ours, theirs = await asyncio.gather(*sides)
                    bar.more()
                    return ShadowPair(user=user, champion=ours, candidate=theirs)

                pairs = await asyncio.gather(*(pair(user, turn) for user, turn in recorded))
    finally:
        await client.aclose()
    verdict = replace(compare_shadow(candidate, pairs), id=f"shadow-of-{candidate}")
    resources.store.add_verdict(verdict)
    resources.show.say(verdict.reason)
    return Shadowed(decision=verdict.decision, reason=verdict.reason, requests=len(pairs))


def recorded_requests(store: Store, count: int) -> list[tuple[str, Turn]]:
    """Return the newest requests of people who agreed, each with its person; at most `EACH` of a session."""
    found = list[tuple[str, Turn]]()
    for page in latest_sessions(store, count):
        agreed = store.accounts.may_train_on(page)
        given = [session for session in agreed if session.ending is not Ending.INFRASTRUCTURE]
        turns = store.turns_of([session.id for session in given])
        found += [
            (session.user, turn)
            for session in given
            for turn in without_side_calls(turns.get(session.id, ()))[:EACH]
            if turn.prompt_ids
        ]
        if len(found) >= count:
            break
    return found[:count]


async def _answer(client: Engines, renderer: Renderer, engines: Sequence[str], turn: Turn) -> ShadowAnswer:
    request = GenerateRequest(
        request_id=new_id(),
        session_id=turn.session_id,
        prompt_ids=turn.prompt_ids,
        stop_ids=renderer.stop_ids,
        max_tokens=max(LEAST_TOKENS, 4 * len(turn.completion.ids)),
        sampling=turn.sampling,
    )
    clock = asyncio.get_running_loop().time
    started = clock()
    try:
        completion = await client.generate(always(*engines), request)
    except ApiError:
        return ShadowAnswer(failed=True)
    cut = completion.finish is FinishReason.LENGTH
    return ShadowAnswer(
        failed=False,
        unreadable=not cut and renderer.parse(completion.ids).broken is not None,
        cut=cut,
        seconds=clock() - started,
        tokens=len(completion.ids),
    )
