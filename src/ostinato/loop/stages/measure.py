"""The benchmark of versions on held-out tasks: those of each gate, and those that no gate sees."""

from collections.abc import Sequence

from ostinato.bench.run import Bench
from ostinato.deploy.gate import part_frozen, tasks_of_gate
from ostinato.deploy.hold_out import sum_on_tasks
from ostinato.harness.episode import Episode
from ostinato.loop.base import Resources
from ostinato.loop.results import Champion, Measured
from ostinato.types import Arm, Task


async def measure(
    resources: Resources, version: int, tasks: Sequence[Task], *, passes: int = 1, profile: str | None = None
) -> Measured:
    """Return scores, behaviour and the outcome of every task in every pass, under the run's own profile or
    under another one."""
    arm = Arm(name=f"bench-{version}", version=version, share=0.0, engines=())
    solved, total = 0, passes * len(tasks)
    async with resources.serving(arm) as engine:
        bench = Bench(
            resources.runner(resources.client("bench", arm.name), profile),
            resources.store,
            resources.config.bench.at_once,
        )
        under = "" if profile is None else f" under {profile}"
        with resources.show.stage(f"bench of version {version}{under}", total=total) as bar:

            def count(episode: Episode) -> None:
                nonlocal solved
                solved += episode.solved
                bar.more(f"{solved} solved of {total}")

            measurement = await bench.measure(version, tasks, passes=passes, on_done=count)
        return Measured(measurement=measurement, engine=await resources.counters(engine))


class HeldOutTasks:
    """The held-out tasks of a run, which no trainer sees; `first` is the champion of the first cycle."""

    def __init__(self, resources: Resources, tasks: Sequence[Task], first: Champion) -> None:
        self._resources = resources
        self._all = tuple(tasks)
        self._gates, self._frozen = part_frozen(tasks, resources.config.bench.frozen)
        self.first = first

    def of_gate(self, cycle: str) -> list[Task]:
        """Return the tasks of the gate of a cycle."""
        return tasks_of_gate(self._gates, self._resources.config.bench.gate_share, cycle)

    def is_known(self, cycle: str) -> bool:
        """Return whether the champion has done the tasks of this gate: when they are all that there are."""
        return len(self.of_gate(cycle)) == len(self._all)

    async def sum_of_promotions(self, newest: int, promotions: int) -> str:
        """Return how the newest version compares with the first on the frozen tasks; empty without such."""
        if not self._frozen:
            return ""
        before = await self._resources.stage(
            "hold-out-tasks", Measured, lambda: self._measured(self.first.version)
        )
        after = await self._measured(newest)
        return sum_on_tasks(before.measurement, after.measurement, promotions)

    async def _measured(self, version: int) -> Measured:
        return await measure(
            self._resources, version, self._frozen, passes=self._resources.config.bench.passes
        )
