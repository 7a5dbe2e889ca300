"""The line of a step: what the trainer measured, beside what the record says of its batch."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from ostinato.store import Ledger, Phase, Store
from ostinato.store.steps import dropped_so_far, newest_rewards
from ostinato.train.base import StepStats
from ostinato.train.figures.measures import percentiles
from ostinato.train.objective.k1 import trees_of
from ostinato.types import Group, KindFigures, Percentiles, Reward, StepFigures


def step_figures(
    store: Store,
    groups: Sequence[Group],
    stats: StepStats,
    *,
    version: int,
    k1: float,
    seconds: float,
    waited: float,
) -> StepFigures:
    """Return the figures of the step that made `version` of `groups`; `k1` is its weight in the reward.

    `groups` are those that were trained on.
    """
    rewards = [reward for group in groups for reward in group.rewards]
    parts = part_means(newest_rewards(store, _scored(groups)))
    return StepFigures(
        version=version,
        loss=stats.loss,
        gradient=stats.gradient,
        rows=stats.rows,
        tokens=stats.tokens,
        sessions=len(rewards),
        staleness=max(version - 1 - group.oldest_version for group in groups),
        ratio=stats.ratio,
        cut=stats.cut,
        mismatch=stats.mismatch,
        effective=stats.effective,
        gaps=stats.gaps,
        entropy=stats.entropy,
        k1=stats.k1,
        routes_recorded=stats.routes_recorded,
        routes_differing=stats.routes_differing,
        routes_replaced=stats.routes_replaced,
        reward=fmean(rewards),
        best=fmean(max(group.rewards) for group in groups),
        parts=parts if stats.k1 is None else {**parts, "k1": -k1 * stats.k1},
        kinds=of_kinds(groups),
        stale_so_far={
            kind: KindFigures(groups=count, length=length, turns=turns)
            for kind, (count, length, turns) in Ledger(store).tally(Phase.STALE).items()
        },
        lengths=session_lengths(groups),
        dropped_so_far=dropped_so_far(store),
        dropped=dict(Counter(stats.dropped.values())),
        seconds=seconds,
        waited=waited,
    )


def of_kinds(groups: Sequence[Group]) -> dict[str, KindFigures]:
    """Return the figures of the groups of each kind of task."""
    by_kind: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_kind[group.kind].append(group)
    return {
        kind: KindFigures(
            groups=len(some),
            length=fmean(len(sample.ids) for group in some for sample in group.samples),
            turns=fmean(len(sample.turns) for group in some for sample in group.samples),
            reward=fmean(reward for group in some for reward in group.rewards),
            best=fmean(max(group.rewards) for group in some),
        )
        for kind, some in by_kind.items()
    }


def session_lengths(groups: Sequence[Group]) -> Percentiles:
    """Return the sampled tokens of a session, all its segments together."""
    tokens: dict[str, int] = defaultdict(int)
    for group in groups:
        for sample in group.samples:
            tokens[sample.session_id] += sum(sample.mask)
    return percentiles(list(tokens.values()))


def part_means(rewards: Sequence[Reward]) -> Mapping[str, float]:
    """Return the mean over sessions of each part of their rewards; one without the part counts 0."""
    totals: dict[str, float] = defaultdict(float)
    for reward in rewards:
        for part in reward.parts:
            totals[part.name] += part.value / len(rewards)
    return dict(totals)


def _scored(groups: Sequence[Group]) -> list[str]:
    """Return the sessions that have rewards: those alone, and the branches of the others."""
    trees = (tree for group in groups for tree in trees_of(group))
    return [session for tree in trees for session in (tree[1:] or tree)]
