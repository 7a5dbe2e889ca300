"""The simulation: people work with the version that their arm serves, and all that they show is recorded.

Everything follows from the seed and from the record, so a simulation that was killed goes on with the very
session that comes next. It works in ticks: what happened since the last one is recorded in one transaction,
each fact with its own time.
"""

import asyncio
import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from ostinato.gateway.arms import assign
from ostinato.store import Store
from ostinato.types import Arm, Ending, Session, Signal, Source, Turn
from ostinato_lab.week.acts import ACTS, CLOSE, PLAN, WORK, Act, Vocabulary
from ostinato_lab.week.base import SECONDS, Attempt, Feedback, Population, SimulatedRequest, attempt_of
from ostinato_lab.week.policy import ActPolicy, Policies, act_of

TICK_S = 300.0
SALT = "week"


def tick_of(moment: float) -> float:
    """Return the tick that records what happened at a moment: the first one that is not before it."""
    return math.ceil((moment + TICK_S / 2) / TICK_S) * TICK_S - TICK_S / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One session in the eyes of its developer; only reports read it.

    >>> Served(user="dev-0001", at=0.0, arm="champion", version=0, satisfaction=0.5, honest=True).arm
    'champion'
    """

    user: str
    at: float
    arm: str
    version: int
    satisfaction: float
    honest: bool


class Simulation:
    """The people of a week. `began` is its first moment in seconds since the epoch; `seed` draws the acts."""

    def __init__(
        self, store: Store, policies: Policies, population: Population, *, seed: int, began: float
    ) -> None:
        self._store = store
        self._policies = policies
        self._population = population
        self._seed = seed
        self._pending: list[tuple[float, str, Signal]] = []
        self.served: list[Served] = []
        self._visits = [(began + population.first_s(user), user, 0) for user in population.users]
        heapq.heapify(self._visits)

    def restore(self) -> None:
        """Let everybody agree to training, and remember what the record holds of an earlier process."""
        agreed = self._store.accounts.consented([("", user) for user in self._population.users])
        for user in self._population.users:
            if not agreed["", user]:
                self._store.accounts.set_consent(user=user, granted=True, by="simulation")
        sessions = {s.id: s for s in self._store.sessions(source=Source.LIVE)}
        turns = self._store.turns_of(sessions)
        known = {signal.id for some in self._store.signals_of(sessions).values() for signal in some}
        while self._visits and _id(*self._visits[0][1:]) in sessions:
            _, user, number = heapq.heappop(self._visits)
            session = sessions[_id(user, number)]
            acts = acts_of(act_of(self._policies.vocabulary, turn.completion) for turn in turns[session.id])
            version = turns[session.id][0].completion.versions[0]
            self._account(self._attempt(user, number, acts), session, number, version)
        self._pending = [each for each in self._pending if each[2].id not in known]
        heapq.heapify(self._pending)

    async def run(self) -> None:
        """Work on and on, in ticks of the loop's clock."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(TICK_S - (now() + TICK_S / 2) % TICK_S)
            self.advance(until=now())

    def advance(self, until: float) -> None:
        """Record everything that happens up to that moment."""
        arms = self._store.arms()
        sessions: list[Session] = []
        turns: list[Turn] = []
        while self._visits and self._visits[0][0] <= until:
            at, user, number = heapq.heappop(self._visits)
            arm = assign(user, arms, SALT, session=f"{user}/{number}", at=at)
            session, some = self._session(at, user, number, arm)
            sessions.append(session)
            turns += some
        signals = [signal for _, _, signal in self._due(until)]
        if sessions or signals:
            self._store.record(turns, signals, sessions)

    def _due(self, until: float) -> Iterator[tuple[float, str, Signal]]:
        while self._pending and self._pending[0][0] <= until:
            yield heapq.heappop(self._pending)

    def _session(self, at: float, user: str, number: int, arm: Arm) -> tuple[Session, list[Turn]]:
        policy, id_ = self._policies.of(arm.version), _id(user, number)
        request = self._population.request(user, number)
        sampled = turns_of(
            policy, self._policies.vocabulary, request, session_id=id_, arm=arm.name, at=at, seed=self._seed
        )
        acts = acts_of(act_of(self._policies.vocabulary, turn.completion) for turn in sampled)
        attempt = self._attempt(user, number, acts)
        session = Session(
            id=id_,
            source=Source.LIVE,
            user=user,
            arm=arm.name,
            task_id=request.stratum,
            harness="week",
            started_at=at,
            ending=Ending.BROKEN if Act.BREAK in acts else Ending.FINISHED,
            consent=True,
        )
        self._account(attempt, session, number, arm.version)
        return session, sampled

    def _attempt(self, user: str, number: int, acts: tuple[Act, Act, Act]) -> Attempt:
        luck = Random(f"luck/{self._seed}/{user}/{number}")
        return attempt_of(self._population.request(user, number), acts, luck)

    def _account(self, attempt: Attempt, session: Session, number: int, version: int) -> None:
        """Ask the developer what they do and think, and when they come again."""
        user, at = session.user, session.started_at
        feedback = self._population.feedback(user, number, attempt)
        ended = at + attempt.took_s
        for each in signals_of(feedback, _id(user, number), ended):
            heapq.heappush(self._pending, (each.observed_at, each.id, each))
        self.served.append(
            Served(
                user=user,
                at=at,
                arm=session.arm,
                version=version,
                satisfaction=feedback.satisfaction,
                honest=self._population.honest(user),
            )
        )
        heapq.heappush(self._visits, (ended + feedback.away_s, user, number + 1))


def turns_of(
    policy: ActPolicy,
    vocabulary: Vocabulary,
    request: SimulatedRequest,
    *,
    session_id: str,
    arm: str,
    at: float,
    seed: int,
) -> list[Turn]:
    """Return the three turns of a session that begins at `at`, sampled from the policy."""
    rng, prompt, turns = Random(f"acts/{seed}/{session_id}"), tuple[int, ...](), list[Turn]()
    for index, turn in enumerate(ACTS):
        view = vocabulary.views[turn, request.stratum, request.ambiguous and turn == PLAN]
        prompt = (*prompt, view)
        completion = policy.sample(view, rng)
        act = act_of(vocabulary, completion)
        turns.append(
            Turn(
                session_id=session_id,
                index=index,
                segment=0,
                arm=arm,
                prompt_ids=prompt,
                completion=completion,
                started_at=at,
                latency_s=SECONDS[act],
                broken="the call is cut off" if act is Act.BREAK else None,
            )
        )
        at += SECONDS[act]
        prompt = (*prompt, *completion.ids)
    return turns


def signals_of(feedback: Feedback, session_id: str, ended: float) -> list[Signal]:
    """Return what a developer shows as signals, which have the same ids however often they are made."""
    return [
        Signal(
            session_id=session_id,
            kind=reaction.kind,
            value=reaction.value,
            observed_at=ended + reaction.after_s,
            turn=1 if reaction.about_edit else None,
            edit=f"{session_id}/edit" if reaction.about_edit else None,
            id=f"{session_id}/{place}",
        )
        for place, reaction in enumerate(feedback.reactions)
    ]


def acts_of(acts: Iterable[Act]) -> tuple[Act, Act, Act]:
    """Return the acts of the three turns; one that belongs to another turn is a call that cannot be read."""
    plan, work, close = acts
    plan = plan if plan in ACTS[PLAN] else Act.RUSH
    return plan, work if work in ACTS[WORK] else Act.BREAK, close if close in ACTS[CLOSE] else Act.CLAIM


def _id(user: str, number: int) -> str:
    return f"{user}-{number:06d}"
