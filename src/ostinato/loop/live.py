"""The version is deployed: simulated developers use it, and what they do is recorded."""

import time
from typing import Any

from ostinato.loop.measure import pebbles
from ostinato.loop.workshop import Workshop
from ostinato.rewards.definition import LIVE
from ostinato.rollout.live import Traffic, Visit
from ostinato.tasks.developers import Developer, population
from ostinato.types import Arm, Source

CHAMPION = "champion"
CHALLENGER = "challenger"


def developers(shop: Workshop) -> list[Developer]:
    return population(shop.config.live.developers, shop.config.seed)


def settled() -> float:
    """A time by which the attribution windows of all simulated sessions so far are over.

    Simulated developers do all they will ever do as soon as their session ends, so a window's length is
    added to the clock instead of waited for. With people the clock alone counts.
    """
    return time.time() + LIVE.window_s


async def live(shop: Workshop, champion: int) -> dict[str, Any]:
    """One day of work with the champion as the only arm."""
    engine = await shop.engine("engine-live", "--version", str(champion))
    shop.put_arm(Arm(name=CHAMPION, version=champion, share=1.0, engine=engine.url))
    episodes = await work(shop, "live", shop.config.live.sessions_each, first_seed=600_000)
    stats = await shop.stats(engine)
    await shop.services.stop(engine)
    sessions = shop.store.sessions(source=Source.LIVE, arm=CHAMPION, ended=True)
    signals = shop.store.signals_of([session.id for session in sessions])
    return {
        "version": champion,
        "sessions": len(episodes),
        "signals": sum(map(len, signals.values())),
        "engine": stats,
    }


async def work(shop: Workshop, name: str, sessions_each: int, *, first_seed: int) -> list[Visit]:
    """Every developer brings some requests; whichever arm is theirs serves them."""
    people = developers(shop)
    stream = pebbles("train", shop.config.seed * 1_000_000 + first_seed)
    traffic = Traffic(shop.runner(shop.client("simulator")), shop.store, shop.run.tasks / name)
    kept = 0
    with shop.show.stage(f"{len(people)} developers, {name}", total=len(people) * sessions_each) as bar:

        def done(visit: Visit) -> None:
            nonlocal kept
            kept += visit.pleased
            bar.more(f"{kept} edits kept and answers taken")

        return await traffic.work(shop.seats(people), lambda: next(stream), sessions_each, done)
