"""The hold-out during a cycle: the first version is served beside the champion."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import reduce

from ostinato.deploy.hold_out import FIRST, NEWEST, hold_out_arms
from ostinato.deploy.traffic import placed
from ostinato.loop.base import Resources
from ostinato.loop.results import Published
from ostinato.rollout.collect import PAGE
from ostinato.store import Ledger, Store
from ostinato.store.pages import ended_sessions
from ostinato.types import Arm, Session, State
from ostinato.types.release import HOLD_OUT


@asynccontextmanager
async def holding_out(resources: Resources, champion: Arm) -> AsyncIterator[None]:
    """Serve the first version to its half of the hold-out while the block runs; `champion` is up already.

    The first version is the champion of the first cycle that had a hold-out, and stays so in this run folder.
    """
    share = resources.config.live.hold_out
    if not share:
        resources.store.change_arms(lambda present: [arm for arm in present if arm.experiment != HOLD_OUT])
        yield
        return

    async def now() -> Published:
        return Published(version=champion.version)

    first = await resources.stage("hold-out", Published, now)
    async with resources.serving(Arm(name=FIRST, version=first.version, share=0.0, engines=())):

        def held_out(present: Sequence[Arm]) -> Sequence[Arm]:
            arms = {arm.name: arm for arm in present}
            return reduce(placed, hold_out_arms(arms[FIRST], arms[champion.name], share), present)

        resources.store.change_arms(held_out)
        yield


def account_held_out(store: Store, since: float = math.inf) -> list[Session]:
    """Account all ended sessions of the hold-out as measured; return those that began at `since` or later."""
    found = list[Session]()
    for page in ended_sessions(store, (FIRST, NEWEST), PAGE):
        Ledger(store).account_sessions([session.id for session in page], State.MEASURED)
        found += [session for session in page if session.started_at >= since]
    return found
