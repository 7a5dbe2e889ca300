"""The people of a team: who is invited, who works, what may be learnt from, and who leaves."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import case, func, select

from ostinato.loop.live_config import LiveConfig, live_definition
from ostinato.loop.people import Arrived, ripe
from ostinato.loop.team.file import TeamError, decided
from ostinato.store import Store
from ostinato.store.joins import Joins
from ostinato.store.purge import PURGED
from ostinato.store.sql.schema import sessions
from ostinato.types import Role, Source

DAY_S = 86_400.0
WEEK = 7


def invite(store: Store, names: Sequence[str], organisation: str, *, days: float) -> dict[str, str]:
    """Return a join code for each name. Raises TeamError for a name that is none, before any code is made."""
    if wrong := [name for name in names if not name.strip() or name.split() != [name]]:
        raise TeamError(
            f"{wrong[0]!r} is no name: give one word for each person, as `ostinato team add ada ben`"
        )
    if not days > 0:
        raise TeamError(f"--days is {days:g}: a code is valid for some time above 0")
    expires_at = time.time() + days * DAY_S
    return {name: Joins(store.database).invite(name, organisation, expires_at=expires_at) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What became of a person who leaves.

    >>> Left(user="ada", organisation="", keys=1, codes=0, sessions=3).sessions
    3
    """

    user: str
    organisation: str
    keys: int
    codes: int
    sessions: int


def remove(store: Store, user: str, organisation: str | None) -> Left:
    """Revoke the keys and codes of a user; sessions stay. Raises TeamError for nobody, or for several."""
    joins = Joins(store.database)
    keys = [each for each in store.accounts.keys() if each.user == user]
    known = {each.organisation for each in [*keys, *(each for each in joins.open() if each.user == user)]}
    if organisation is not None:
        known &= {organisation}
    if len(known) != 1:
        where = f"in {', '.join(map(repr, sorted(known)))}: say in which with --org" if known else "here"
        raise TeamError(f"{user!r} has {'keys' if known else 'no key and no code'} {where}")
    (theirs,) = known
    mine = [each.hash for each in keys if each.organisation == theirs]
    store.accounts.retire(mine)
    worked = {(person.user, person.organisation): person for person in _worked(store, time.time())}.get(
        (user, theirs)
    )
    return Left(
        user=user,
        organisation=theirs,
        keys=len(mine),
        codes=joins.withdraw(user, theirs),
        sessions=worked.sessions if worked else 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """One person of the team.

    >>> Person(user="ada", organisation="", sessions=3, last_at=0.0, state="joined").trained_on
    False
    """

    user: str
    organisation: str
    sessions: int = 0
    first_at: float | None = None
    last_at: float | None = None
    """When their first and their last session began, in seconds since the epoch."""
    recent: int = 0
    """Their sessions of the last week."""
    state: str = "left"
    """`joined`, `invited`, `expired`, or `left`."""
    trained_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a team stands.

    >>> Standing(people=(), arrived=Arrived(counted=3, young=0), wanted=40, a_day=2.0, each_a_day=2.0).first_in_days
    18.5
    """

    people: tuple[Person, ...]
    arrived: Arrived
    wanted: int
    """The sessions that may be learnt from which a candidate needs."""
    a_day: float
    """Such sessions of a day, over the last week or since the first one."""
    each_a_day: float
    """The sessions of one person in a day, whether they may be learnt from or not."""

    @property
    def first_in_days(self) -> float | None:
        """The days until enough sessions are there; None where none come."""
        missing = self.wanted - self.arrived.counted
        if missing <= 0:
            return 0.0
        return missing / self.a_day if self.a_day else None

    @property
    def claim(self) -> str:
        """What so many people can show of a candidate."""
        working = sum(person.state == "joined" for person in self.people)
        return decided(working, round(self.each_a_day, 1))[1]


def standing(store: Store, live: LiveConfig, now: float) -> Standing:
    """Return where the team stands; administrators, who work with no model, are none of its people."""
    worked = {(each.user, each.organisation): each for each in _worked(store, now)}
    states = dict.fromkeys(worked, "left")
    for code in Joins(store.database).open():
        states[code.user, code.organisation] = "invited" if code.expires_at > now else "expired"
    for key in store.accounts.keys():  # noqa: SIM118 (a method, not a mapping)
        if Role.ADMIN not in key.roles:
            states[key.user, key.organisation] = "joined"
    agreed = store.accounts.consented(states.keys())
    people = tuple(
        replace(
            worked.get(pair, Person(user=pair[0], organisation=pair[1])), state=state, trained_on=agreed[pair]
        )
        for pair, state in sorted(states.items())
    )
    definition = live_definition(live)
    week = ripe(store, definition, now=now, oldest_s=WEEK * DAY_S)
    began = min((each.first_at for each in people if each.first_at is not None), default=now)
    days = min(WEEK, max(1.0, (now - began) / DAY_S))
    joined = [each for each in people if each.state == "joined"]
    return Standing(
        people=people,
        arrived=ripe(store, definition, now=now, oldest_s=live.oldest_s),
        wanted=live.sessions,
        a_day=(week.counted + (week.young or 0)) / days,
        each_a_day=sum(each.recent for each in joined) / days / max(1, len(joined)),
    )


def _worked(store: Store, now: float) -> list[Person]:
    """Return everybody who has a live session, with their sessions."""
    column = sessions.c
    recent = func.sum(case((column.started_at > now - WEEK * DAY_S, 1), else_=0))
    times = func.count(), func.min(column.started_at), func.max(column.started_at), recent
    query = select(column.user, column.organisation, *times).where(column.source == Source.LIVE.value)
    query = query.group_by(column.user, column.organisation)
    with store.database.read() as connection:
        rows = connection.execute(query).all()
    return [
        Person(
            user=user,
            organisation=organisation,
            sessions=count,
            first_at=first,
            last_at=last,
            recent=int(new),
        )
        for user, organisation, count, first, last, new in rows
        if not user.startswith(f"{PURGED}-")
    ]
