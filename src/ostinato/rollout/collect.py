"""Live sessions and their signals ─► rewards ─► groups of one for the ledger.

A live prompt is sampled once, so there is no group to compare with: the baseline is the mean reward of other
people's sessions of the same stratum (the kind of request), and no person has more than a share of the batch.

A session is collected when it is offered, and that is one transaction: before it nothing is reserved, so a
kill at any point leaves sessions that the next collection takes. A signal that arrives between the scoring of
a session and the trainer's claim makes the ledger return it, and the next collection scores it anew.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ostinato.rewards.live.definition import LiveDefinition
from ostinato.rollout.credit import Credited, LiveCredit, credit_live, samples, score_live
from ostinato.store import Ledger, Phase, Stage, Store
from ostinato.store.definitions import keep_definition
from ostinato.types import Ending, Group, Session, Source, State, new_id

Known = tuple[str, Phase | None]
"""The prompt of a live session, and its phase in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """The figures of one collection."""

    sessions: int
    """Ended sessions that may be trained on and were not trained on, or given up, before."""
    signals: int
    offered: int
    """Sessions that wait for the trainer now, those of an earlier collection that was cut short included."""
    censored: int
    untrainable: int
    withheld: int
    """Sessions that may not be trained on: no consent when they began, or taken back since."""
    mean_reward: float
    too_old: int = 0
    """Sessions that nothing is learnt from any more: they are older than the bound."""
    mean_age_s: float = 0.0
    oldest_age_s: float = 0.0
    """The age of those that wait for the trainer now, since their last turn."""

    @property
    def line(self) -> str:
        """The figures in one line for a person."""
        ages = f"{_length(self.mean_age_s)} old on average and {_length(self.oldest_age_s)} at most"
        said = f"collected {self.offered} of {self.sessions} sessions, {ages}"
        said += f", {self.signals} signals, mean reward {self.mean_reward:.2f}"
        if self.too_old:
            said += f"; {self.too_old} are too old to learn from"
        return said + (f"; {self.withheld} are withheld for want of consent" if self.withheld else "")


def _length(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.1f} days"


def await_collection(store: Store, sessions: Sequence[Session]) -> None:
    """Leave ended live sessions for the next collection, each of their turns with a state until then.

    Those that our own failure ended are void, and are not waited for; a cycle has collected some already.
    """
    ledger = Ledger(store)
    void = [session.id for session in sessions if session.ending is Ending.INFRASTRUCTURE]
    known = ledger.live_prompts([each.id for each in sessions if each.ending is not Ending.INFRASTRUCTURE])
    waiting = {id_: prompt for id_, (prompt, phase) in known.items() if phase in {None, Phase.RESERVED}}
    ledger.account_sessions(void, State.VOID)
    ledger.account_sessions(waiting, State.CENSORED)
    ledger.wait(waiting.values(), State.CENSORED)


class Collector:
    """The collector of live sessions: those of some arms become groups, each session once."""

    def __init__(
        self,
        store: Store,
        definition: LiveDefinition,
        person_share: float = 1.0,
        *,
        oldest_s: float = math.inf,
    ) -> None:
        """Learn from sessions of at most `oldest_s`, in seconds since their last turn."""
        self._store = store
        self._oldest_s = oldest_s
        self._ledger = Ledger(store)
        self._definition = definition
        self._person_share = person_share
        keep_definition(store, definition.hash(), definition.text())

    def harvest(
        self,
        arms: Sequence[str],
        stratum_of: Mapping[str, str],
        *,
        as_of: float,
        unheard: Collection[str] = (),
    ) -> Harvest:
        """Offer the sessions of `arms` that are ready, and return the figures.

        `stratum_of` maps a task id, or the id of a session without a task, to its stratum; those that have
        none share one. A session is taken when its attribution window is over at `as_of` (seconds since the
        epoch), or at maturity if it is drawn to wait, whether it got feedback or not: otherwise only sessions
        with feedback would be learnt from.
        The others wait, and so do those of `unheard`, whose follow-ups no judge has read yet. Sessions are
        offered in an order that nobody chose: versions are trained on them in turn, and one that came in a
        burst of one person's would be all theirs.
        """
        self._ledger.reopen()
        prompts = self._uncollected(arms)
        given, withheld = self._split(prompts)
        scored, too_old = self._young(score_live(self._store, self._definition, given, as_of=as_of))
        waits = {session.id for session, (_, phase) in prompts.items() if phase is Phase.OFFERED}
        self._store.add_rewards(each.reward for each in scored if each.session.id not in waits)
        asked_again = set(unheard) - waits
        ripe = [each for each in scored if each.settled and each.session.id not in asked_again]
        ripe.sort(key=lambda each: sha256(each.session.id.encode()).digest())
        taken_up = {each.session.id for each in ripe}
        self._wait([each for each in scored if each.session.id not in taken_up], prompts)
        strata = [stratum_of.get(each.session.task_id or each.session.id, "") for each in ripe]
        credited_all = credit_live(ripe, strata, self._person_share)
        taken = [
            each.session.id in waits or self._offer(each, credited, prompts[each.session][0], stratum)
            for each, credited, stratum in zip(ripe, credited_all, strata, strict=True)
        ]
        ages = [self._age_s(each) for each, is_taken in zip(ripe, taken, strict=True) if is_taken]
        return Harvest(
            sessions=len(given),
            signals=sum(len(each.signals) for each in scored),
            offered=sum(taken),
            censored=len(scored) - len(ripe),
            untrainable=len(taken) - sum(taken),
            withheld=len(withheld),
            mean_reward=sum(each.reward.total for each in ripe) / max(1, len(ripe)),
            too_old=too_old,
            mean_age_s=sum(ages) / max(1, len(ages)),
            oldest_age_s=max(ages, default=0.0),
        )

    def _young(self, scored: Sequence[LiveCredit]) -> tuple[list[LiveCredit], int]:
        """Return the sessions that are not too old, and the number of the others, which are given up."""
        old = {each.session.id for each in scored if self._age_s(each) > self._oldest_s}
        self._ledger.account_sessions(old, State.STALE)
        self._ledger.give_up(list(old), "too old to learn from")
        return [each for each in scored if each.session.id not in old], len(old)

    def _age_s(self, one: LiveCredit) -> float:
        """Return the time since the last turn of a session, by the clock of the record."""
        ended = max((turn.started_at + turn.latency_s for turn in one.turns), default=one.session.started_at)
        return self._store.now() - ended

    def _uncollected(self, arms: Sequence[str]) -> dict[Session, Known]:
        """Return the ended sessions whose prompt is not at its end, with the prompt and its phase.

        Turns that came after the end of a prompt are accounted as too late, and sessions that our own failure
        ended as void.
        """
        ended = [s for arm in arms for s in self._store.sessions(source=Source.LIVE, arm=arm, ended=True)]
        ours = [session for session in ended if session.ending is not Ending.INFRASTRUCTURE]
        void = [session.id for session in ended if session.ending is Ending.INFRASTRUCTURE]
        self._ledger.account_sessions(void, State.VOID)
        known = self._ledger.live_prompts([session.id for session in ours])
        prompts = {
            session: known[session.id]
            for session in ours
            if known[session.id][1] in {None, Phase.RESERVED, Phase.OFFERED}
        }
        self._ledger.account_late([session.id for session in ours if session not in prompts])
        return prompts

    def _split(self, prompts: Mapping[Session, Known]) -> tuple[list[Session], list[Session]]:
        """Return the sessions with consent, then and now, and the others, which are accounted."""
        agreed = self._store.accounts.consented([(s.organisation, s.user) for s in prompts])
        given = [s for s in prompts if s.consent and agreed[s.organisation, s.user]]
        consented = set(given)
        withheld = [s for s in prompts if s not in consented]
        self._ledger.account_sessions([session.id for session in withheld], State.WITHHELD)
        self._ledger.wait([prompts[session][0] for session in withheld], State.WITHHELD)
        return given, withheld

    def _wait(self, scored: Sequence[LiveCredit], prompts: Mapping[Session, Known]) -> None:
        """Leave sessions for a later collection, which may find what their reward still needs."""
        self._ledger.account_sessions([each.session.id for each in scored], State.CENSORED)
        self._ledger.wait([prompts[each.session][0] for each in scored], State.CENSORED)

    def _offer(self, one: LiveCredit, credited: Credited, prompt: str, kind: str) -> bool:
        """Offer a group of one; False when nothing of it can be trained on, or a signal came."""
        rows = samples(self._ledger, credited)
        if not rows:
            self._ledger.give_up([one.session.id], State.UNTRAINABLE)
            return False
        group = Group(
            id=new_id(),
            prompt=prompt,
            samples=tuple(rows),
            rewards=(one.reward.total,),
            kind=kind,
            person=credited.person,
            weight=credited.weight,
        )
        return self._ledger.offer(group, stage=Stage.LIVE, facts=len(one.turns) + len(one.signals))
