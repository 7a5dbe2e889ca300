"""The people of a team: who is invited, who works, what may be learnt from, and who leaves."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import case, func, select

from ostinato.loop.live_config import LiveConfig, live_definition
from ostinato.loop.people import Arrived, ripe
from ostinato.loop.team.file import TeamError, decided
from ostinato.store import Store
from ostinato.store.purge import PURGED
from ostinato.store.sql.schema import sessions
from ostinato.store.team.joins import Joins
from ostinato.types import Role, Source

DAY_S, WEEK = 86_400.0, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One person of the team, with their sessions in all and in the last week; times since the epoch.

    >>> Member(user="ada", organisation="", sessions=3, state="joined").trained_on
    False
    """

    user: str
    organisation: str
    sessions: int = 0
    recent: int = 0
    first_at: float | None = None
    last_at: float | None = None
    state: str = "left"
    """`joined`, `invited`, `expired`, or `left`."""
    trained_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamStanding:
    """The state of a team: its people, what may be learnt from, and what can be shown.

    >>> arrived = Arrived(counted=3, young=0)
    >>> TeamStanding(people=(), arrived=arrived, wanted=40, a_day=2.0, claim="").first_in_days
    18.5
    """

    people: tuple[Member, ...]
    arrived: Arrived
    wanted: int
    """The sessions that may be learnt from which a candidate needs."""
    a_day: float
    """Such sessions of a day, over the last week or since the first one."""
    claim: str
    """What so many people can show of a candidate."""

    @property
    def first_in_days(self) -> float | None:
        """The days until enough sessions are there; None where none come."""
        missing = self.wanted - self.arrived.counted
        if missing <= 0:
            return 0.0
        return missing / self.a_day if self.a_day else None


def invite(store: Store, names: Sequence[str], organisation: str, *, days: float) -> Mapping[str, str]:
    """Return a join code for each name. Raises TeamError for a name that is none, before any code is made."""
    if wrong := [name for name in names if name.split() != [name]]:
        raise TeamError(f"{wrong[0]!r} is no name: give one word for each, as `ostinato team add ada ben`")
    if not days > 0:
        raise TeamError(f"--days is {days:g}: a code is valid for some time above 0")
    joins, until = Joins(store.database), time.time() + days * DAY_S
    return {name: joins.invite(name, organisation, expires_at=until) for name in names}


def remove(store: Store, user: str, organisation: str | None) -> tuple[Member, int, int]:
    """Revoke the keys and codes of a user, whose sessions stay; return them, with the numbers of both.

    Raises TeamError for a user who has neither, and for one whom several organisations know.
    """
    joins = Joins(store.database)
    keys = [each for each in store.accounts.keys() if each.user == user]  # noqa: SIM118 (a method)
    known = {each.organisation for each in keys}
    known |= {each.organisation for each in joins.open() if each.user == user}
    if organisation is not None:
        known &= {organisation}
    if not known:
        raise TeamError(f"{user!r} has neither key nor code here: `ostinato team status` lists the people")
    if len(known) > 1:
        raise TeamError(f"{user!r} is in {', '.join(map(repr, sorted(known)))}: say in which with --org")
    (theirs,) = known
    mine = [each.hash for each in keys if each.organisation == theirs]
    store.accounts.retire(mine)
    withdrawn = joins.withdraw(user, theirs)
    here = {(each.user, each.organisation): each for each in _worked(store, time.time())}
    return here.get((user, theirs), Member(user=user, organisation=theirs)), len(mine), withdrawn


def standing(store: Store, live: LiveConfig, now: float) -> TeamStanding:
    """Return where the team stands; administrators, who work with no model, are none of its people."""
    worked = {(each.user, each.organisation): each for each in _worked(store, now)}
    states = dict.fromkeys(worked, "left")
    for code in Joins(store.database).open():
        states[code.user, code.organisation] = "invited" if code.expires_at > now else "expired"
    for key in store.accounts.keys():  # noqa: SIM118 (a method)
        if Role.ADMIN not in key.roles:
            states[key.user, key.organisation] = "joined"
    agreed = store.accounts.consented([(organisation, user) for user, organisation in states])
    here = {who: worked.get(who, Member(user=who[0], organisation=who[1])) for who in sorted(states)}
    people = tuple(
        replace(each, state=states[who], trained_on=agreed[who[::-1]]) for who, each in here.items()
    )
    definition = live_definition(live)
    week = ripe(store, definition, now=now, oldest_s=WEEK * DAY_S)
    began = min((each.first_at for each in people if each.first_at is not None), default=now)
    days = min(WEEK, max(1.0, (now - began) / DAY_S))
    joined = [each.recent for each in people if each.state == "joined"]
    return TeamStanding(
        people=tuple(people),
        arrived=ripe(store, definition, now=now, oldest_s=live.oldest_s),
        wanted=live.sessions,
        a_day=(week.counted + (week.young or 0)) / days,
        claim=decided(len(joined), round(sum(joined) / days / max(1, len(joined)), 1))[1],
    )


def _worked(store: Store, now: float) -> list[Member]:
    """Return everybody who has a live session, with their sessions."""
    column = sessions.c
    recent = func.sum(case((column.started_at > now - WEEK * DAY_S, 1), else_=0))
    times = func.count(), recent, func.min(column.started_at), func.max(column.started_at)
    query = select(column.user, column.organisation, *times).where(column.source == Source.LIVE.value)
    with store.database.read() as connection:
        rows = connection.execute(query.group_by(column.user, column.organisation)).all()
    names = ("user", "organisation", "sessions", "recent", "first_at", "last_at")
    people = [Member(**dict(zip(names, row, strict=True))) for row in rows]
    return [each for each in people if not each.user.startswith(f"{PURGED}-")]
