"""The monitors over recorded sessions: before a candidate is promoted, and over time."""

from collections.abc import Iterable, Sequence

from ostinato.deploy.terms import Trial
from ostinato.loop.base import Resources
from ostinato.loop.live_config import live_definition
from ostinato.loop.run import START
from ostinato.model.families import load_renderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.rewards.live.definition import LiveDefinition
from ostinato.rewards.monitors.alarms import Alarm, Drift, alarms, drifts
from ostinato.rewards.monitors.behaviour import Observed
from ostinato.rewards.signals import without_side_calls
from ostinato.store import Store
from ostinato.store.pages import newest_sessions
from ostinato.types import Ending, Session, Source

WATCHED = 2_000
"""The sessions on each side of a cycle's beginning in which a change is looked for; all of them, with their
texts, are in memory."""
Seen = tuple[str, Observed]
"""A person and one session of theirs."""


def watched(
    store: Store, tokenizer: Tokenizer, definition: LiveDefinition, sessions: Iterable[Session], as_of: float
) -> list[Seen]:
    """Return what the monitors see of sessions that are old enough to be compared, or void."""
    listed = list(sessions)
    ids = [session.id for session in listed]
    turns_of, signals_of = store.turns_of(ids), store.signals_of(ids)
    seen = []
    for session in listed:
        turns, signals = without_side_calls(turns_of.get(session.id, ())), signals_of.get(session.id, ())
        void = session.ending is Ending.INFRASTRUCTURE
        reward = None if void else definition.settled(session.id, turns, signals, as_of=as_of)
        if reward is None and not void:
            continue
        until = definition.settles_at(turns, signals) if turns else as_of
        told = [signal for signal in signals if signal.observed_at <= until]
        observed = Observed(
            session_id=session.id,
            arm=session.arm,
            at=session.started_at,
            turns=turns,
            signals=told,
            calls=[tokenizer.decode(turn.completion.ids) for turn in turns],
            reward=reward,
            void=void,
        )
        seen.append((session.user, observed))
    return seen


def drifts_of(resources: Resources, arm: str, since: float, as_of: float) -> list[Drift]:
    """Return the behaviours of an arm that changed since the cycle before, `since`, among the newest
    `WATCHED` sessions before it and the newest as many after it.
    """
    tokenizer = load_renderer(resources.run.checkpoint(START)).tokenizer
    definition = live_definition(resources.config.live)
    store = resources.store
    sessions = newest_sessions(store, arm, WATCHED, before=since)
    sessions += store.sessions(source=Source.LIVE, arm=arm, ended=True, since=since, limit=WATCHED)
    return drifts_since(watched(store, tokenizer, definition, sessions, as_of), since)


def drifts_since(seen: Sequence[Seen], since: float) -> list[Drift]:
    """Return the behaviours that changed in the sessions from `since` on, against those before."""
    ordered = sorted(seen, key=lambda each: each[1].at)
    return drifts(
        [each for each in ordered if each[1].at < since], [each for each in ordered if each[1].at >= since]
    )


def alarms_of_trial(seen: Sequence[Seen], trial: Trial) -> list[Alarm]:
    """Return the alarms on the challenger's sessions of a trial against the champion's."""
    before = [each for each in seen if each[1].arm == trial.champion]
    after = [each for each in seen if each[1].arm == trial.challenger]
    return alarms(before, after)
