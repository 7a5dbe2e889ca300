"""Live sessions and their signals ─► rewards ─► groups of one for the ledger.

A live prompt is sampled once, so there is no group to compare with: the baseline is the mean reward of other
people's sessions of the same stratum (the kind of request), and no person has more than a share of the batch.

A session is collected when it is offered, and that is one transaction: before it nothing is reserved, so a
kill at any point leaves sessions that the next collection takes. A signal that arrives between the scoring of
a session and the trainer's claim makes the ledger return it, and the next collection scores it anew.

However long the record is, the tokens of a few sessions are in memory at a time, and what is known of at most
twice `COMPARED` sessions: that many are compared with each other, in the order of their ids.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import TypeVar

from ostinato.rewards.live.definition import LiveDefinition
from ostinato.rollout.credit import Credited, LiveCredit, credit_live, samples, score_live
from ostinato.store import Ledger, Phase, Stage, Store
from ostinato.store.definitions import keep_definition
from ostinato.store.pages import ended_sessions
from ostinato.types import Ending, Group, Session, State, new_id

COMPARED = 10_000
"""The sessions that are compared with each other, and in which no person has more than a share, where there
are so many."""
AT_ONCE = 200
"""The sessions whose tokens are in memory at a time."""
PAGE = 2_000
"""The sessions of the record that are read by one query."""
T = TypeVar("T")
Known = tuple[str, Phase | None]
"""The prompt of a live session, and its phase in the ledger."""
StrataOf = Callable[[Sequence[Session]], Mapping[str, str]]
"""From sessions that are compared with each other to the stratum of each, by the id of its task, or of the
session where it has none. Those that have none share one."""


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

    def __add__(self, other: "Harvest") -> "Harvest":
        """Return the sum of all figures."""
        ours, theirs = (asdict(each) for each in (self, other))
        return Harvest(**{name: value + theirs[name] for name, value in ours.items()})


def uncollected(store: Store, arms: Sequence[str], *, since: float = 0.0) -> Iterator[dict[Session, Known]]:
    """Yield the ended sessions of some arms that can still be learnt from, a page of the record at a time.

    They began at `since` or later, in seconds since the epoch.
    """
    for page in ended_sessions(store, arms, PAGE, since=since):
        yield _open(store, page)


def _open(store: Store, ended: Sequence[Session]) -> dict[Session, Known]:
    """Return those whose prompt is not at its end, with the prompt and its phase."""
    ours = [session for session in ended if session.ending is not Ending.INFRASTRUCTURE]
    known = Ledger(store).live_prompts([session.id for session in ours])
    return {s: known[s.id] for s in ours if known[s.id][1] in {None, Phase.RESERVED, Phase.OFFERED}}


def _alike(sessions: Sequence[Session]) -> Mapping[str, str]:
    return {}


def _length(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.1f} days"


NOTHING = Harvest(sessions=0, signals=0, offered=0, censored=0, untrainable=0, withheld=0, mean_reward=0.0)


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
        strata_of: StrataOf = _alike,
        *,
        as_of: float,
        unheard: Collection[str] = (),
    ) -> Harvest:
        """Offer the sessions of `arms` that are ready, and return the figures.

        A session is taken when its attribution window is over at `as_of` (seconds since the epoch), or at
        maturity if it is drawn to wait, whether it got feedback or not: otherwise only sessions with feedback
        would be learnt from.
        The others wait, and so do those of `unheard`, whose follow-ups no judge has read yet. Sessions are
        offered in an order that nobody chose: versions are trained on them in turn, and one that came in a
        burst of one person's would be all theirs.
        """
        self._ledger.reopen()
        harvest, rewards, ages = NOTHING, 0.0, list[float]()
        for prompts in self._batches(arms):
            more, earned, aged = self._collect(prompts, strata_of, as_of, unheard)
            harvest, rewards, ages = harvest + more, rewards + earned, ages + aged
        return replace(
            harvest,
            mean_reward=rewards / max(1, harvest.offered + harvest.untrainable),
            mean_age_s=sum(ages) / max(1, len(ages)),
            oldest_age_s=max(ages, default=0.0),
        )

    def _collect(
        self,
        prompts: Mapping[Session, Known],
        strata_of: StrataOf,
        as_of: float,
        unheard: Collection[str],
    ) -> tuple[Harvest, float, list[float]]:
        """Collect sessions that are compared with each other; return the figures, the sum of the rewards of
        those that were ready, and the age in seconds of each that waits for the trainer now.
        """
        given, withheld = self._split(prompts)
        waits = {session.id for session, (_, phase) in prompts.items() if phase is Phase.OFFERED}
        pieces = (
            score_live(self._store, self._definition, some, as_of=as_of, kept=waits)
            for some in _pieces(given, AT_ONCE)
        )
        scored, too_old = self._young([one for some in pieces for one in some])
        asked_again = set(unheard) - waits
        ripe = [each for each in scored if each.settled and each.session.id not in asked_again]
        ripe.sort(key=lambda each: sha256(each.session.id.encode()).digest())
        taken_up = {each.session.id for each in ripe}
        self._wait([each for each in scored if each.session.id not in taken_up], prompts)
        stratum_of = strata_of([each.session for each in ripe])
        strata = [stratum_of.get(each.session.task_id or each.session.id, "") for each in ripe]
        credited = credit_live(ripe, strata, self._person_share)
        taken = {each.session.id for each in ripe} & waits
        new = [pair for pair in zip(ripe, credited, strata, strict=True) if pair[0].session.id not in waits]
        for some in _pieces(new, AT_ONCE):
            turns = self._store.turns_of([each.session.id for each, _, _ in some])
            for each, one, stratum in some:
                whole = replace(one, turns=turns.get(each.session.id, []))
                if self._offer(each, whole, prompts[each.session][0], stratum):
                    taken.add(each.session.id)
        figures = Harvest(
            sessions=len(given),
            signals=sum(each.signals for each in scored),
            offered=len(taken),
            censored=len(scored) - len(ripe),
            untrainable=len(ripe) - len(taken),
            withheld=len(withheld),
            mean_reward=0.0,
            too_old=too_old,
        )
        ages = [self._age_s(each) for each in ripe if each.session.id in taken]
        return figures, sum(each.reward for each in ripe), ages

    def _young(self, scored: Sequence[LiveCredit]) -> tuple[list[LiveCredit], int]:
        """Return the sessions that are not too old, and the number of the others, which are given up."""
        old = {each.session.id for each in scored if self._age_s(each) > self._oldest_s}
        self._ledger.account_sessions(old, State.STALE)
        self._ledger.give_up(list(old), "too old to learn from")
        return [each for each in scored if each.session.id not in old], len(old)

    def _age_s(self, one: LiveCredit) -> float:
        """Return the time since the last turn of a session, by the clock of the record."""
        return self._store.now() - one.ended_at

    def _batches(self, arms: Sequence[str]) -> Iterator[dict[Session, Known]]:
        """Yield the sessions to collect, at least `COMPARED` at a time where there are so many."""
        waiting: dict[Session, Known] = {}
        for page in ended_sessions(self._store, arms, PAGE):
            waiting |= self._uncollected(page)
            if len(waiting) >= 2 * COMPARED:
                yield dict(islice(waiting.items(), COMPARED))
                waiting = dict(islice(waiting.items(), COMPARED, None))
        yield waiting

    def _uncollected(self, ended: Sequence[Session]) -> dict[Session, Known]:
        """Return those of ended sessions whose prompt is not at its end, with the prompt and its phase.

        Turns that came after the end of a prompt are accounted as too late, and sessions that our own failure
        ended as void.
        """
        void = {session.id for session in ended if session.ending is Ending.INFRASTRUCTURE}
        self._ledger.account_sessions(void, State.VOID)
        prompts = _open(self._store, ended)
        self._ledger.account_late([s.id for s in ended if s not in prompts and s.id not in void])
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
            rewards=(one.reward,),
            kind=kind,
            person=credited.person,
            weight=credited.weight,
        )
        return self._ledger.offer(group, stage=Stage.LIVE, facts=one.turns + one.signals)


def _pieces(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
