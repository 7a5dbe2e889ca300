"""The influence of each person on what is learnt from one rollout a prompt, and the bound on it.

A session weighs w, and the weights of one person's sessions add up to at most κ of all weights W. Its
advantage is w (r - b), where b is the weighted mean reward of *other people's* sessions of its stratum. So
nobody's own sessions are in their baseline, and a person who floods the batch gains nothing beyond κ.

The bound: let rewards lie within a range R, and let each session's score Σ ∇ log π have a norm of at most G.
Let the people in S, whose sessions weigh W_S together, do anything at all in these sessions in place of what
they did. Then the mean gradient (1/W) Σ w (r - b) ∇ log π changes by at most

    G R (2 W_S + Σ_i w_i V_i / (V_i + U_i)) / W

where the sum is over the sessions of everybody else, V_i is the weight of S in the baseline of i, and U_i
that of the others there. The first term is what S say themselves, at most R each before and after; the second
is what they do to the baselines of others: moving the share V / (V + U) of a mean by R. With m people in S
the first term is at most 2 m κ G R, however many sessions they bring. The bound is on the gradient; an
optimizer that rescales it, as Adam does, rescales both sides.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int_]


def person_weights(people: Sequence[str], share: float) -> Floats:
    """Return the weight of each session, 1 at most; nobody's sessions have more than `share` of all weight.

    `people` names the person of each session. Where people are few, twice an equal part is the limit.

    >>> person_weights(["ada"] * 6 + ["bob", "cyd", "dan", "eve"], 0.5).round(3).tolist()
    [0.667, 0.667, 0.667, 0.667, 0.667, 0.667, 1.0, 1.0, 1.0, 1.0]
    """
    if not people:
        return np.ones(0)
    _, who, counts = np.unique(np.array(people, dtype=str), return_inverse=True, return_counts=True)
    limit = _limit(np.sort(counts).astype(np.float64), max(share, 2 / len(counts)))
    return np.asarray(np.minimum(1.0, limit / counts)[who], dtype=np.float64)


def _limit(counts: Floats, share: float) -> float:
    """Return the L with L = share · Σ min(counts, L), `counts` rising; more than all where nothing is cut.

    With the k smallest below it, L = share · (their sum) / (1 - share · (the number of the others)).
    """
    below = 0.0
    for k, count in enumerate(counts):
        others = 1 - share * (len(counts) - k)
        if others > 0 and share * below / others <= count:
            return share * below / others
        below += float(count)
    return max(share * below, float(counts[-1]))


def person_advantages(
    rewards: Sequence[float], people: Sequence[str], strata: Sequence[str], weights: Floats
) -> Floats:
    """Return w (r - b) of each session; see above.

    Where a person is alone in a stratum, b is of everybody else's sessions; where they are alone altogether,
    of their own other sessions, those of the stratum first; a session that is the only one gets 0.
    """
    r = np.asarray(rewards, dtype=np.float64)
    peers = _Peers.of(people, strata)
    mass, total = peers.total(weights), peers.total(weights * r)
    baseline = np.where(peers.some, total / np.where(peers.some, mass, 1.0), r)
    return np.asarray(weights * (r - baseline))


def influence_bound(
    people: Sequence[str],
    strata: Sequence[str],
    weights: Floats,
    of: Collection[str],
    *,
    span: float = 1.0,
    score: float = 1.0,
) -> float:
    """Return the most by which the people `of` can move the mean gradient; `span` is R and `score` G."""
    theirs = np.isin(np.array(people, dtype=str), list(of))
    peers = _Peers.of(people, strata)
    mass, part = peers.total(weights), peers.total(weights * theirs)
    moved = np.where(peers.some, part / np.where(peers.some, mass, 1.0), 0.0)
    said, heard = 2 * float(weights[theirs].sum()), float((weights * moved)[~theirs].sum())
    return span * score * (said + heard) / float(weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peers:
    """The sessions in the baseline of each session, without a table of pairs.

    >>> _Peers.of(["ada", "bob"], ["fix", "fix"]).total(np.array([1.0, 2.0]))
    array([2., 1.])
    """

    person: Places
    stratum: Places
    pair: Places
    """The number of each session's person, stratum, and person in that stratum."""
    near: NDArray[np.bool_]
    """True where other people have sessions of the stratum."""
    far: NDArray[np.bool_]
    """True where other people have sessions at all."""
    own: NDArray[np.bool_]
    """True where their person has other sessions of the stratum."""
    some: NDArray[np.bool_]
    """True where there is any other session."""

    @classmethod
    def of(cls, people: Sequence[str], strata: Sequence[str]) -> "_Peers":
        person = np.unique(np.array(people, dtype=str), return_inverse=True)[1]
        stratum = np.unique(np.array(strata, dtype=str), return_inverse=True)[1]
        pair = np.unique(np.stack([person, stratum], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        counts = [np.bincount(each)[each] if len(each) else each for each in (person, stratum, pair)]
        n = len(person)
        return cls(
            person=person,
            stratum=stratum,
            pair=pair,
            near=counts[1] > counts[2],
            far=n > counts[0],
            own=counts[2] > 1,
            some=np.full(n, n > 1),
        )

    def total(self, values: Floats) -> Floats:
        """Return, for each session, the sum of `values` over the sessions in its baseline."""
        person, stratum, pair = (
            np.bincount(each, weights=values)[each] if len(each) else values
            for each in (self.person, self.stratum, self.pair)
        )
        others = np.where(self.near, stratum - pair, values.sum() - person)
        alone = np.where(self.own, pair, person) - values
        return np.asarray(np.where(self.near | self.far, others, alone))
