"""The published figures of such a system, beside what the plan computes."""

from dataclasses import dataclass

from ostinato_lab.planner.cluster import ClusterPlan
from ostinato_lab.planner.cycle import Simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One published figure, the computed one, and what explains the difference."""

    what: str
    published: str
    computed: str
    why: str


def compare(plan: ClusterPlan, found: Simulated) -> list[Comparison]:
    """Return the published figures of the reference and its relatives beside those of this plan."""
    step_s = plan.costs["cluster.step_sessions"] * plan.tokens_of(plan.costs["cluster.turns"])
    step_s = step_s / plan.train_tokens_per_s() + plan.costs["cluster.step_fixed_s"]
    tokens = (
        plan.traffic * plan.costs["cluster.live_share"] * plan.tokens_of(plan.costs["cluster.live_turns"])
    )
    trial_s = sum(found.trial_s().values())
    return [
        Comparison(
            what="delta of a version",
            published="a handful of GB for 1T (Composer 2 report); 20.3 GiB (Fireworks)",
            computed=f"{plan.delta() / 1e9:.1f} GB",
            why="at 1 % of weights changed; 0.3 to 0.5 %, as a smaller rate gives, would be 4 to 6 GB",
        ),
        Comparison(
            what="pause of an engine at a swap",
            published="well under a minute, about 30 s (Fireworks); 2.8 s (Stitch, Kimi K2.6)",
            computed=f"{plan.pause_s():.1f} s",
            why="the weights are rebuilt before the pause, which only moves a shard from host to GPU",
        ),
        Comparison(
            what="a version everywhere",
            published="a few minutes, usually under one (Fireworks)",
            computed=f"{max(found.published_s):.0f} s",
            why="encode, bucket, the slowest link, rebuild and pause; nothing fails here",
        ),
        Comparison(
            what="a practice step",
            published="5 to 15 minutes (Sequoia's podcast)",
            computed=f"{step_s / 60:.1f} minutes",
            why="the batch, 256 groups of 16 sessions, is assumed",
        ),
        Comparison(
            what="live tokens of a cycle",
            published="billions (real-time RL post)",
            computed=f"{tokens * found.cycle_s() / 86_400 / 1e9:.1f} billion",
            why="of the traffic that was given",
        ),
        Comparison(
            what="a cycle",
            published="about five hours (real-time RL post)",
            computed=f"{found.cycle_s() / 3600:.1f} hours",
            why=f"to the gate's decision; a trial goes on for {trial_s / 3600:.1f} hours beside the next, "
            "and the post does not say that the A/B test is part of the five hours",
        ),
        Comparison(
            what="sandboxes a second",
            published="> 500 a cluster (Composer 2 report)",
            computed=f"{plan.pods_per_s():,.0f} decided a second by one core",
            why="decisions alone; starting 500 at 0.2 CPU s each takes 100 cores of the nodes",
        ),
    ]
