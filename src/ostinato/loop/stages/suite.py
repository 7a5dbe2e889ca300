"""Versions of a run as sides of a suite, and what the suite shows of a candidate beside the champion."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ostinato.bench.contest import Contest, Results, Side, settings_hash
from ostinato.bench.gating import suite_changes
from ostinato.bench.suite import BenchSuite, open_suite
from ostinato.deploy.suite import SuiteChanges
from ostinato.loop.base import Resources
from ostinato.types import Arm


@asynccontextmanager
async def side_of(resources: Resources, version: int) -> AsyncIterator[Side]:
    """Serve a version under an arm of its own, as a side whose name stands for its weights and settings."""
    digest = next(each.digest for each in resources.store.versions() if each.version == version)
    arm = Arm(name=f"bench-{version}", version=version, share=0.0, engines=())
    async with resources.serving(arm):
        runner = resources.runner(resources.client("bench", arm.name))
        settings = settings_hash(resources.config.harness, runner.harness)
        yield Side(name=f"version {version} ({digest[:12]}, settings {settings})", runner=runner)


async def suite_of(resources: Resources, champion: int, candidate: int) -> SuiteChanges | None:
    """Return the changes on the run's suite; None without one. A version that did it is not asked again.

    Raises BenchError when a pass stays void: the same run goes on with those that are missing.
    """
    bench = resources.config.bench
    if bench.suite is None:
        return None
    suite = open_suite(bench.suite)
    before, after = [await _results(resources, suite, version) for version in (champion, candidate)]
    return suite_changes(suite, bench.suite_passes, before, after)


async def _results(resources: Resources, suite: BenchSuite, version: int) -> Results:
    bench = resources.config.bench
    contest = Contest(resources.store, suite, passes=bench.suite_passes, slots=bench.at_once)
    total = len(suite.tasks) * bench.suite_passes
    async with side_of(resources, version) as side:
        with resources.show.stage(f"{suite.label} with version {version}", total=total) as bar:
            return await contest.run(side, lambda _: bar.more())
