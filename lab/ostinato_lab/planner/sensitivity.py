"""The gain of one change: each input halved and doubled, and the cycle simulated again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ostinato_lab.planner.cluster import ClusterPlan
from ostinato_lab.planner.costs import PlanError
from ostinato_lab.planner.cycle import simulate

SETTINGS = ("trainers", "engines", "sandboxes", "traffic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The cycle's seconds with an input halved and doubled; None where that cannot be.

    >>> Effect(name="traffic", halved_s=None, doubled_s=9000.0, now_s=10000.0).gain_s
    1000.0
    """

    name: str
    halved_s: float | None
    doubled_s: float | None
    now_s: float

    @property
    def gain_s(self) -> float:
        """The seconds that the better of the two changes saves."""
        return max(0.0, *(self.now_s - each for each in (self.halved_s, self.doubled_s) if each is not None))

    @property
    def reach_s(self) -> float:
        """The largest change of the cycle, whether it saves or costs time."""
        return max(
            abs(self.now_s - each) for each in (self.halved_s, self.doubled_s, self.now_s) if each is not None
        )


def sensitivity(plan: ClusterPlan) -> list[Effect]:
    """Return the effect of every input, the one that saves most first."""
    now = simulate(plan).cycle_s()
    effects = []
    for name, halved, doubled in _changed(plan):
        effects.append(Effect(name=name, halved_s=_cycle_s(halved), doubled_s=_cycle_s(doubled), now_s=now))
    return sorted(effects, key=lambda effect: (-effect.gain_s, -effect.reach_s))


def _changed(plan: ClusterPlan) -> Iterator[tuple[str, ClusterPlan, ClusterPlan]]:
    for name in SETTINGS:
        value = getattr(plan, name)
        yield name, replace(plan, **{name: value / 2}), replace(plan, **{name: value * 2})
    links = [
        tuple(replace(region, bytes_per_s=region.bytes_per_s * factor) for region in plan.regions)
        for factor in (0.5, 2.0)
    ]
    yield "links of the regions", replace(plan, regions=links[0]), replace(plan, regions=links[1])
    for row in plan.costs.of("cluster."):
        halved, doubled = (replace(plan, costs=plan.costs.times(row.name, factor)) for factor in (0.5, 2.0))
        yield row.name, halved, doubled


def _cycle_s(plan: ClusterPlan) -> float | None:
    """Return the length of a cycle, or None for a plan that is refused."""
    try:
        return simulate(plan).cycle_s()
    except PlanError:
        return None
