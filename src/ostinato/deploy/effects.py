"""The difference between two arms of a trial, from arrays of users.

Users were assigned to arms, so users are counted: every error is a jackknife over them. There are two means.
*By user* each user's mean session counts once, whatever number of sessions they had; a trial tests that one.
*By session* each session counts once, so that busy users weigh more; it can be the lower of the two when busy
users lose what the many gain. All functions take arrays whose last axis is the users, so that one call judges
one trial or a million simulated ones.
"""

from dataclasses import replace

import numpy as np

from ostinato.deploy.statistics import Estimate, Flags, Floats, clustered, minus

MIN_USERS = 8
"""The fewest users per arm; with fewer, no error estimate can be trusted."""
HEAVIEST = 0.1
"""The part of each arm's users, those with the most sessions, who are also looked at alone."""


def effect(
    counts: Floats,
    sums: Floats,
    challenger: Flags,
    before: Floats,
    *,
    by_session: bool = False,
    scale: float = 1.0,
) -> Estimate:
    """Return challenger minus `scale` times champion, for the mean value of a session, by user.

    `counts` and `sums`, (..., users), are the number of each user's sessions so far and the sum of their
    values. `challenger` is True for users assigned to the challenger. `before` is each user's mean from
    before the trial, NaN for newcomers. The last two have the shape (users,) or one that broadcasts to the
    first two.
    """
    theirs, ours = arms(counts, sums, challenger, before, by_session=by_session)
    return minus(theirs, replace(ours, value=scale * ours.value, error=abs(scale) * ours.error))


def busy_users(counts: Floats, sums: Floats, challenger: Flags, before: Floats) -> tuple[Estimate, Estimate]:
    """Return challenger minus champion by session, and by user among the heaviest tenth of users.

    The mean by user hides what busy users lose.
    """
    heavy = heaviest(counts, challenger)
    return (
        effect(counts, sums, challenger, before, by_session=True),
        effect(heavy, np.where(heavy > 0, sums, 0.0), challenger, before),
    )


def arms(
    counts: Floats, sums: Floats, challenger: Flags, before: Floats, *, by_session: bool = False
) -> tuple[Estimate, Estimate]:
    """Return the means (challenger, champion) that `effect` compares."""
    present = counts > 0
    means = sums / np.where(present, counts, 1.0)
    weights = np.where(present, counts if by_session else 1.0, 0.0)
    means = _without(before, means, weights, challenger)
    theirs, ours = np.where(challenger, weights, 0.0), np.where(challenger, 0.0, weights)
    both = clustered(theirs * means, theirs), clustered(ours * means, ours)
    return _at_least_pooled(both, (theirs, ours), means)


def heaviest(counts: Floats, challenger: Flags) -> Floats:
    """Return `counts` with 0 for all but the tenth of each arm's users who had the most sessions.

    Users with as many as the last of them belong to them too, so where all are as active all are in. There
    are `MIN_USERS` on each arm at least, as far as the arm has them.
    """
    kept = np.zeros_like(counts)
    for side in (challenger, ~challenger):
        mine = np.where(side, counts, 0.0)
        present = (mine > 0).sum(axis=-1, keepdims=True)
        rank = np.maximum(np.minimum(present, MIN_USERS), np.ceil(HEAVIEST * present)).astype(int)
        at = np.clip(mine.shape[-1] - rank, 0, mine.shape[-1] - 1)
        least = np.take_along_axis(np.sort(mine, axis=-1), at, axis=-1)
        kept += np.where((mine >= least) & (mine > 0), mine, 0.0)
    return kept


def _at_least_pooled(
    arms: tuple[Estimate, Estimate], weights: tuple[Floats, Floats], means: Floats
) -> tuple[Estimate, Estimate]:
    """Return both arms with errors no smaller than the variation of all users together implies.

    A small arm in which a rare thing happened to nobody would have an error of 0, and prove anything.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = [np.nan_to_num(w / w.sum(axis=-1, keepdims=True)) for w in weights]
        squares = [np.square(share).sum(axis=-1) for share in shares]
        spread = sum(
            np.square(np.nan_to_num(share * (means - arm.value[..., None]) / (1 - share))).sum(axis=-1)
            for share, arm in zip(shares, arms, strict=True)
        )
        variance = spread / sum(squares)
    first, second = (
        replace(arm, error=np.maximum(arm.error, np.sqrt(np.nan_to_num(variance) * square)))
        for arm, square in zip(arms, squares, strict=True)
    )
    return first, second


def _without(before: Floats, means: Floats, weights: Floats, challenger: Flags) -> Floats:
    """Return `means` less what `before` explains of them; each user's slope is estimated from all others.

    Source: Deng, Xu, Kohavi, Walker, "Improving the sensitivity of online controlled experiments", WSDM 2013;
    leaving the user out keeps the comparison unbiased however few users there are.
    """
    known = np.isfinite(before)
    w = weights * known
    x = np.where(known, before, 0.0)
    x = np.where(known, x - _centre(x, known.astype(np.float64)), 0.0)
    theirs, ours = _centre(means, w * challenger), _centre(means, w * ~challenger)
    spread = w * np.square(x)
    product = w * x * (means - np.where(challenger, theirs, ours))
    others = spread.sum(axis=-1, keepdims=True) - spread
    usable = (known.sum(axis=-1, keepdims=True) >= MIN_USERS) & (others > 0)
    slope = (product.sum(axis=-1, keepdims=True) - product) / np.where(usable, others, 1.0)
    return np.asarray(means - np.where(usable, slope, 0.0) * x)


def _centre(values: Floats, weights: Floats) -> Floats:
    weight = weights.sum(axis=-1, keepdims=True)
    return np.asarray((values * weights).sum(axis=-1, keepdims=True) / np.where(weight > 0, weight, 1.0))
