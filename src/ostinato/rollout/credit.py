"""Credit: the rewards and advantages of sampled sessions, and the samples that come of them.

Practice compares sessions of one prompt with each other. A live prompt is sampled once, so its session is
compared with the others of its stratum. Turns and signals of all sessions are read by one query each.
"""

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from ostinato.extend import PluginError
from ostinato.rewards.definition import Definition
from ostinato.rewards.live.definition import LiveDefinition
from ostinato.store import Ledger, Store
from ostinato.train.objective.group import Baseline, above_the_others
from ostinato.train.objective.influence import person_advantages, person_weights
from ostinato.train.objective.tree import tree_advantages
from ostinato.train.samples import UntrainableError, samples_of, trainable
from ostinato.types import Sample, Session, State, Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The sessions that came of one start and were verified: one alone, or the branches of a fork.

    >>> Scored(trunk="s", branches=("s-0", "s-1")).trunk
    's'
    """

    trunk: str | None
    """The session of the shared turns; None without a fork, when there is exactly one branch."""
    branches: tuple[str, ...]
    solved: int = 0
    """The branches that solved their task."""

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions of the tree: one that was not forked, or the trunk and then its branches."""
        return self.branches if self.trunk is None else (self.trunk, *self.branches)

    def pack(self) -> bytes:
        """Return it as bytes, which `unpack` reads."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, kept: bytes) -> "Scored":
        value = json.loads(kept)
        return cls(trunk=value["trunk"], branches=tuple(value["branches"]), solved=value["solved"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """The turns of one session, and the advantage of everything that was sampled in them."""

    session_id: str
    turns: Sequence[Turn]
    advantage: float
    person: str = ""
    weight: float = 1.0
    """The weight of a live session; `Group` says more of it and of `person`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCredit:
    """A live session with what its reward came to. Its tokens are not held: there may be many sessions."""

    session: Session
    turns: int
    signals: int
    """The numbers of turns and signals that its reward was read from."""
    reward: float
    settled: bool
    """True when it can be trained on: its window is over, and it does not wait to be mature."""
    worth: float
    """What it is worth to the trainer: its reward, corrected for what the window could not show."""
    has_samples: bool
    """True when something of it can be trained on."""
    ended_at: float
    """The end of its last turn, in seconds since the epoch."""


def credit_group(
    store: Store, definition: Definition, trees: Sequence[Scored], baseline: Baseline = above_the_others
) -> tuple[list[Credited], tuple[float, ...]]:
    """Score all sessions of one prompt; return their advantages, and the reward of each tree.

    The reward of a branch is read from its own turns and those that it shares with its siblings. A trunk is
    worth the mean of its branches. Nothing of a group is returned where a plug-in fails on it.
    """
    trunk_of = {branch: tree.trunk for tree in trees for branch in tree.branches}
    turns = store.turns_of({*trunk_of, *filter(None, trunk_of.values())})
    signals = store.signals_of(trunk_of)
    try:
        rewards = {
            id_: definition.score(
                id_, [*turns.get(trunk or "", []), *turns.get(id_, [])], signals.get(id_, [])
            )
            for id_, trunk in trunk_of.items()
        }
    except PluginError as error:  # neither a price of 0 nor a full one would be true
        log.warning("a group is not learnt from: %s", error)
        return [], ()
    store.add_rewards(rewards.values())
    totals = [[rewards[branch].total for branch in tree.branches] for tree in trees]
    credited = [
        Credited(session_id=id_, turns=turns.get(id_, []), advantage=advantage)
        for id_, advantage in _advantages(trees, totals, baseline)
    ]
    return credited, tuple(map(fmean, totals))


def _advantages(
    trees: Sequence[Scored], totals: list[list[float]], baseline: Baseline
) -> Iterator[tuple[str, float]]:
    """Yield each session: a trunk for the turns that were shared, a branch for its own."""
    of_trunks, of_branches = tree_advantages(totals, baseline)
    for tree, of_trunk, each in zip(trees, of_trunks, of_branches, strict=True):
        if tree.trunk is None:
            yield tree.branches[0], of_trunk
        else:
            yield tree.trunk, of_trunk
            yield from zip(tree.branches, each, strict=True)


def score_live(
    store: Store,
    definition: LiveDefinition,
    sessions: Sequence[Session],
    *,
    as_of: float,
    kept: Collection[str] = (),
) -> list[LiveCredit]:
    """Score ended live sessions by what is known of them at `as_of`, in seconds since the epoch, and record
    the rewards; those of the sessions `kept` are left as they are.
    """
    ids = [session.id for session in sessions]
    turns_of, signals_of = store.turns_of(ids), store.signals_of(ids)
    scored, rewards = [], []
    for session in sessions:
        turns, signals = turns_of.get(session.id, []), signals_of.get(session.id, [])
        ripe = definition.ripe(session.id, turns, signals, as_of=as_of)
        reward = ripe[0] if ripe else definition.score(session.id, turns, signals, as_of=as_of)
        rewards += [reward] if session.id not in kept else []
        scored.append(
            LiveCredit(
                session=session,
                turns=len(turns),
                signals=len(signals),
                reward=reward.total,
                settled=ripe is not None,
                worth=ripe[1] if ripe else reward.total,
                has_samples=_has_samples(turns),
                ended_at=max((t.started_at + t.latency_s for t in turns), default=session.started_at),
            )
        )
    store.add_rewards(rewards)
    return scored


def credit_live(
    scored: Sequence[LiveCredit], strata: Sequence[str], person_share: float = 1.0
) -> list[Credited]:
    """Compare each session with those of other people in its stratum.

    Nobody's sessions weigh more than `person_share` of all together; `train.objective.influence` has the
    bound. Sessions that cannot be trained on are in no baseline and have no weight, else they would raise
    everybody's share of what is trained; their advantage is 0. The turns are the caller's to add.
    """
    learnt = [(each, stratum) for each, stratum in zip(scored, strata, strict=True) if each.has_samples]
    people = _people([each.session for each, _ in learnt])
    weights = person_weights(people, person_share)
    rewards = [each.worth for each, _ in learnt]
    advantages = person_advantages(rewards, people, [stratum for _, stratum in learnt], weights)
    credited = {
        each.session.id: Credited(
            session_id=each.session.id, turns=(), advantage=float(a), person=person, weight=float(w)
        )
        for (each, _), person, a, w in zip(learnt, people, advantages, weights, strict=True)
    }
    return [
        credited.get(each.session.id) or Credited(session_id=each.session.id, turns=(), advantage=0.0)
        for each in scored
    ]


def _people(sessions: Sequence[Session]) -> list[str]:
    """Return the key of the person of each session: the first session of theirs here.

    So a group tells people apart, and after a purge nothing that was made of a name is left in it.
    """
    first: dict[tuple[str, str], str] = {}
    return [first.setdefault((each.organisation, each.user), each.id) for each in sessions]


def _has_samples(turns: Sequence[Turn]) -> bool:
    """Return whether anything of a session can be trained on."""
    try:
        return bool(samples_of(trainable(turns)[0], 0.0))
    except UntrainableError:
        return False


def samples(ledger: Ledger, credited: Credited, *, summaries: bool = True) -> list[Sample]:
    """Return the samples of a session, none if nothing of it can be trained on.

    With `summaries` false the session's own summaries are context and not trained on.
    Turns that are no part of a sample are accounted as untrainable, each with its reason.
    """
    turns, others = trainable(credited.turns)
    for reason, some in others.items():
        ledger.account([turn.id for turn in some], State.UNTRAINABLE, reason)
    try:
        return samples_of(turns, credited.advantage, summaries=summaries)
    except UntrainableError as error:
        log.warning("untrainable session %s: %s", credited.session_id, error)
        ledger.account([turn.id for turn in turns], State.UNTRAINABLE, error.reason)
        return []
