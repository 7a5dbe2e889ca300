"""The outcomes of promotions in the record: which are mature, and what they say of each provisional one."""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from ostinato.deploy.late import Promotion, fallen, judge_outcomes, promotions, settle_all
from ostinato.deploy.terms import TrialSession
from ostinato.loop.base import LiveTraffic, Resources
from ostinato.loop.live_config import live_definition
from ostinato.rewards.live.definition import LiveDefinition
from ostinato.rewards.live.outcomes import read_outcomes
from ostinato.rewards.signals import SignalValueError
from ostinato.store import Store
from ostinato.store.outlines import outlines_of
from ostinato.types import Ending, Session, Source, Verdict

LATE_EVERY_S = 3600.0
"""The time between two looks at the outcomes of earlier promotions."""


class LateFacts:
    """The judgement of late facts, and of people, on promotions while cycles and trials go on."""

    def __init__(self, resources: Resources, traffic: LiveTraffic) -> None:
        self._resources = resources
        self._traffic = traffic
        self._settled_at = -math.inf

    def fallen(self) -> list[Promotion]:
        """Return the newest promotions that stand no more and were not put back, oldest first.

        Outcomes are read as of each whole hour, so a process that went on after a kill finds the same.
        """
        store, show = self._resources.store, self._resources.show
        now = store.now()
        hour = now // LATE_EVERY_S * LATE_EVERY_S
        if hour != self._settled_at:  # a clock may be put back
            self._settled_at, as_of = hour, hour + self._traffic.clock() - now
            definition = live_definition(self._resources.config.live)
            for late in settle_promotions(store, definition, as_of=as_of):
                show.say(f"version {late.version}: {late.reason}")
        return fallen([each for each in promotions(store) if not each.put_back])


def settle_promotions(store: Store, definition: LiveDefinition, *, as_of: float) -> list[Verdict]:
    """Settle the provisional promotions whose outcomes tell enough at `as_of`, and return the new verdicts.

    `as_of` is on the clock of the sessions, in seconds since the epoch. A definition without outcomes settles
    nothing.
    """
    if not definition.outcomes:
        return []
    chain = [each for each in promotions(store) if not each.put_back]
    if all(each.late is not None or each.terms is None for each in chain):
        return []
    return settle_all(store, chain, lambda one: judge_promotion(store, definition, one, as_of))


def judge_promotion(store: Store, definition: LiveDefinition, one: Promotion, as_of: float) -> Verdict:
    """Return what the outcomes of a promotion's own trial say of it at `as_of`.

    Sessions that were purged are left out, whatever is reported of them afterwards, and so are those that our
    own failure ended, and `unread` ones, of which a signal cannot be read or no turn is left.
    """
    trial, since = one.trial, 0.0 if one.terms is None else float(one.terms["since"])
    met = [
        session
        for arm in (trial.champion, trial.challenger)
        for session in store.sessions(source=Source.LIVE, arm=arm, ended=True, since=since)
        if session.started_at < one.ended_at and session.ending is not Ending.INFRASTRUCTURE
    ]
    counted = sorted(met, key=lambda each: each.started_at)[: trial.horizon]
    ids = [session.id for session in counted]
    turns, signals, following = outlines_of(store, ids), store.signals_of(ids), _next_sessions(store, since)
    told: dict[str, list[tuple[TrialSession, float, bool]]] = {name: [] for name in definition.outcomes}
    unread = 0
    for session in counted:
        mine, said, next_at = (
            turns.get(session.id, []),
            signals.get(session.id, []),
            following.get(session.id),
        )
        try:
            outcomes = read_outcomes(definition.outcomes, mine, said, as_of=as_of, next_at=next_at)
        except SignalValueError:
            mine = []
        if not mine:
            unread += 1
            continue
        about = TrialSession(arm=session.arm, user=session.user, at=session.started_at, value=0.0, tokens=0.0)
        for name, value in outcomes.items():
            silence = definition.outcomes[name].silence
            told[name].append((about, silence if value is None else value, value is not None))
    margins = {name: outcome.margin for name, outcome in definition.outcomes.items()}
    verdict = judge_outcomes(one.version, trial, margins, told, len(counted) - unread)
    return replace(verdict, evidence={**verdict.evidence, "unread": unread, "as_of": as_of})


def _next_sessions(store: Store, since: float) -> dict[str, float]:
    """Return when the person of each session began their next one, for those who did.

    Who changes the organisation stays the same person, as for the arms.
    """
    of_person: dict[str, list[Session]] = defaultdict(list)
    for session in store.sessions(source=Source.LIVE, since=since):
        of_person[session.user].append(session)
    following: dict[str, float] = {}
    for sessions in of_person.values():
        sessions.sort(key=lambda each: each.started_at)
        following |= {one.id: later.started_at for one, later in pairwise(sessions)}
    return following
