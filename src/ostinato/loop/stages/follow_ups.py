"""The follow-ups of people are read before their sessions are scored.

Simulated developers have none to read: what they think is in their signals, and their words answer questions.
"""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

import aiohttp

from ostinato.loop.base import Resources
from ostinato.loop.live_config import PEOPLE
from ostinato.loop.run import START
from ostinato.model.families import load_renderer
from ostinato.rewards.follow_ups.judge import BaselineJudge, FollowUpJudge, ModelJudge
from ostinato.rewards.follow_ups.read import judge_follow_ups
from ostinato.types import Session

KEY = "OSTINATO_JUDGE_KEY"
"""The environment variable with the key of the judge's address."""


async def read_follow_ups(resources: Resources, sessions: Sequence[Session]) -> frozenset[str]:
    """Record a signal for each follow-up in sessions of people who agreed to training, and say how many.

    Return the sessions with a follow-up on which the judge gave no answer.
    """
    live = resources.config.live
    given = [session for session in sessions if session.consent]
    if live.developers != PEOPLE or not given:
        return frozenset()
    tokenizer = load_renderer(resources.run.checkpoint(START)).tokenizer
    async with AsyncExitStack() as stack:
        judge: FollowUpJudge = BaselineJudge()
        if live.judge:
            http = await stack.enter_async_context(aiohttp.ClientSession())
            judge = ModelJudge(http, live.judge, live.judge_model, os.environ.get(KEY, ""))
        done = await judge_follow_ups(resources.store, tokenizer, judge, given)
    resources.show.say(
        f"read {done.read} follow-ups by {judge.name}; {done.unanswered} got no answer and stay censored"
    )
    return done.waiting
