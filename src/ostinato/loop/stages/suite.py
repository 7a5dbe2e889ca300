"""Versions of a run as sides of a suite, and what the suite shows of a candidate beside the champion."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ostinato.bench.contest import Contest, Results, Side, settings_hash
from ostinato.bench.gating import suite_changes
from ostinato.bench.suite import BenchSuite, open_suite
from ostinato.deploy.suite import SuiteChanges
from ostinato.loop.base import Shop
from ostinato.types import Arm


@asynccontextmanager
async def side_of(shop: Shop, version: int) -> AsyncIterator[Side]:
    """Serve a version under an arm of its own, as a side whose name stands for its weights and settings."""
    digest = next(each.digest for each in shop.store.versions() if each.version == version)
    arm = Arm(name=f"bench-{version}", version=version, share=0.0, engines=())
    async with shop.serving(arm):
        runner = shop.runner(shop.client("bench", arm.name))
        settings = settings_hash(shop.config.harness, runner.harness)
        yield Side(name=f"version {version} ({digest[:12]}, settings {settings})", runner=runner)


async def suite_of(shop: Shop, champion: int, candidate: int) -> SuiteChanges | None:
    """Return the changes on the run's suite; None without one. A version that did it is not asked again.

    Raises BenchError when a pass stays void: the same run goes on with those that are missing.
    """
    bench = shop.config.bench
    if bench.suite is None:
        return None
    suite = open_suite(bench.suite)
    before, after = [await _results(shop, suite, version) for version in (champion, candidate)]
    return suite_changes(suite, bench.suite_passes, before, after)


async def _results(shop: Shop, suite: BenchSuite, version: int) -> Results:
    bench = shop.config.bench
    contest = Contest(shop.store, suite, passes=bench.suite_passes, slots=bench.at_once)
    total = len(suite.tasks) * bench.suite_passes
    async with side_of(shop, version) as side:
        with shop.show.stage(f"{suite.label} with version {version}", total=total) as bar:
            return await contest.run(side, lambda _: bar.more())
