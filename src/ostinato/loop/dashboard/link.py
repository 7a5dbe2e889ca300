"""Trials and monitors read again from the record, for the pages; and the words of people from the pages."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ostinato.config import load
from ostinato.dashboard.reading.base import Answer, WordError
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.deploy.abtest import judge
from ostinato.deploy.control import CycleWordError, say, state_of
from ostinato.deploy.statistics import sample_ratio
from ostinato.deploy.terms import Attendance, Trial, TrialSession
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import live_definition
from ostinato.loop.run import Run
from ostinato.loop.stages.watch import watched
from ostinato.loop.trial import attended, observe, usual
from ostinato.rewards.live.definition import LIVE, LiveDefinition
from ostinato.rewards.monitors.alarms import drifts
from ostinato.rewards.monitors.behaviour import BEHAVIOURS, Observed
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log
from ostinato.types import Source

LOOKS = 24
"""The sessions of a trial after which it is judged again, in equal steps."""
MOST_BEFORE = 2_000
"""The sessions before a trial from which its users' usual reward is read; with more of them none is."""
MOST_WATCHED = 400
"""The newest live sessions that the monitors read again."""
KEPT_S = 20.0
"""The time for which an answer is given again, seconds: a page that is watched asks every two."""


class LoopLink:
    """The loop as the pages see it. A call is answered from the one before for some seconds."""

    def __init__(self, definition: LiveDefinition = LIVE) -> None:
        self._definition = definition
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def looks(self, store: Store, terms: Mapping[str, Any], now: float, most: int | None) -> Answer:
        """Return a trial judged after every 24th part of its first `most` sessions, or of all."""
        key = (store.database.where, f"looks of {terms['experiment']} at {most}")
        answer: Answer = self._once(key, now, lambda: self._looks(store, terms, now, most))
        return answer

    def behaviours(self, store: Store, lexicon: Lexicon | None, now: float) -> list[Answer]:
        """Return each behaviour over the newest live sessions, oldest first, and where it changed if it did.

        Without a tokenizer nothing is read: what an agent wrote is part of most behaviours.
        """
        if lexicon is None:
            return []
        key = (store.database.where, "behaviours")
        answer: list[Answer] = self._once(key, now, lambda: self._behaviours(store, lexicon, now))
        return answer

    def state(self, store: Store) -> Answer:
        """Return the state of the cycle, and whether a trial is under way."""
        state = state_of(cycle_log(store))
        trial = sum(bool(arm.experiment) and arm.share > 0 for arm in store.arms()) == 2
        return {
            "cycle": state.cycle,
            "stage": state.stage,
            "beside": state.trial and f"{state.trial}, {state.trial_stage}",
            "paused": state.paused,
            "word": state.word and f"{state.word.by} said {state.word.action.value}",
            "trial": trial and bool(state.subject),
        }

    def say(self, store: Store, word: str, by: str, reason: str) -> None:
        """Log the word of a person, as `ostinato cycle` does. Raises WordError."""
        try:
            say(store, CycleAction(word), by, reason)
        except CycleWordError as error:
            raise WordError(str(error)) from error
        with self._lock:
            self._kept.clear()

    def _once(self, key: tuple[str, str], now: float, work: Callable[[], Any]) -> Any:
        with self._lock:
            at, answer = self._kept.get(key, (-KEPT_S, None))
            if not 0 <= now - at < KEPT_S:
                answer = work()
                self._kept[key] = now, answer
            return answer

    def _looks(self, store: Store, terms: Mapping[str, Any], now: float, most: int | None) -> Answer:
        trial, ahead_s = trial_of(terms), terms.get("ahead_s", 0.0)
        sessions = [
            session
            for arm in (trial.champion, trial.challenger)
            for session in store.sessions(source=Source.LIVE, arm=arm, since=terms["since"])
        ]
        ended = [session for session in sessions if session.ending is not None]
        settled = observe(store, self._definition, ended, now + ahead_s)
        observed = sorted(settled, key=lambda each: each.at)[: trial.horizon if most is None else most]
        began = terms.get("habits_before", terms["since"])
        before = self._before(store, began, began + ahead_s)
        version = terms["versions"][trial.challenger]
        counts = sorted({round(len(observed) * part / LOOKS) for part in range(1, LOOKS + 1)} - {0})
        came = attended(store, trial, terms["since"], now + ahead_s)  # until now, so of the last look alone
        return {
            "looks": [
                _look(version, trial, observed[:count], before, came if count == counts[-1] else ())
                for count in counts
            ],
            "waiting": len(ended) - len(settled),
            "under_way": len(sessions) - len(ended),
        }

    def _before(self, store: Store, since: float, as_of: float) -> dict[str, float]:
        """Return the usual reward of the users, or of nobody where that would be too much to read."""
        some = store.sessions(source=Source.LIVE, ended=True, limit=MOST_BEFORE + 1)
        many = len(some) > MOST_BEFORE
        return {} if many else usual(store, self._definition, before=since, as_of=as_of)

    def _behaviours(self, store: Store, lexicon: Lexicon, now: float) -> list[Answer]:
        sessions = store.sessions(source=Source.LIVE, ended=True, limit=MOST_WATCHED)
        tokenizer = lexicon.tokenizer
        seen = watched(store, tokenizer, self._definition, sessions, now)
        seen.sort(key=lambda each: each[1].at)
        half = len(seen) // 2
        found = {each.behaviour: each for each in drifts(seen[:half], seen[half:])}
        ordered = [each for _, each in seen]
        return [
            {
                "name": name,
                "points": _over_time(ordered, behaviour.read),
                "drift": _drift(found.get(name)),
                "examples": _examples(ordered, behaviour.read, found.get(name)),
            }
            for name, behaviour in BEHAVIOURS.items()
        ]


def link_of(directory: Path | None) -> LoopLink:
    """Return the link to the loop of a run folder, with the definition of reward that it is under.

    Raises ConfigError when the folder's settings cannot be read.
    """
    settings = None if directory is None else Run(directory=directory).config
    if settings is None or not settings.exists():
        return LoopLink()
    return LoopLink(live_definition(load(RunConfig, settings).live))


def trial_of(terms: Mapping[str, Any]) -> Trial:
    """Return the trial of logged terms."""
    names = {each.name for each in fields(Trial)}  # terms that an earlier version logged lack some
    return Trial(**{name: terms[name] for name in names & terms.keys()})


def _look(
    version: int,
    trial: Trial,
    observed: Sequence[TrialSession],
    before: Mapping[str, float],
    came: Sequence[Attendance],
) -> Answer:
    verdict = judge(version, trial, observed, before, attendance=came)
    evidence = verdict.evidence
    users = evidence["users"]
    return {
        "sessions": len(observed),
        "at": observed[-1].at,
        "users": users,
        "means": {
            arm: _mean([each.value for each in observed if each.arm == arm])
            for arm in (trial.champion, trial.challenger)
        },
        "ratio": sample_ratio(users[trial.challenger], sum(users.values()), trial.share),
        "void": evidence.get("void"),
        "reward": evidence.get("promoting"),
        "harming": evidence.get("harming"),
        "tokens": evidence.get("tokens"),
        "within": evidence.get("within"),
        "decision": verdict.decision.value,
        "reason": verdict.reason,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _over_time(ordered: Sequence[Observed], read: Callable[[Observed], float]) -> list[Answer]:
    """Return the behaviour of at most 20 groups of sessions that follow each other."""
    size = max(1, -(-len(ordered) // 20))
    chunks = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [{"at": some[0].at, "values": [read(each) for each in some]} for some in chunks]


def _drift(found: Any) -> Answer | None:
    return None if found is None else {"rises": found.rises, "began": found.began, "at": found.at}


def _examples(ordered: Sequence[Observed], read: Callable[[Observed], float], found: Any) -> list[str]:
    """Return the sessions since the change that show it best."""
    if found is None:
        return []
    since = [each for each in ordered if each.at >= found.at]
    best = sorted(since, key=lambda each: (read(each), each.at), reverse=found.rises)
    return [each.session_id for each in best[:3]]
