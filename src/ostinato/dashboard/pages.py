"""The pages: their addresses, their titles, and the questions that they ask."""

from collections.abc import Callable
from dataclasses import dataclass

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading import (
    accounts,
    experiment,
    fleet,
    group,
    now,
    rewards,
    session,
    sessions,
    training,
    versions,
)
from ostinato.dashboard.reading.base import Answer, Asked, RecordSource

Read = Callable[[RecordSource, Viewer, Asked], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: its HTML is at its address, its JSON at the same with `.json`.

    >>> Page(address="/sessions", template="sessions.html", title="Sessions", read=sessions.listed).listed
    True
    """

    address: str
    template: str
    title: str
    read: Read
    listed: bool = True
    """Whether the bar at the top leads to it."""
    operator: bool = False
    """Whether it is about the system as a whole, and so for the operator alone."""
    admin: bool = False
    """True when it is for admins alone, who see their own organisation."""
    under: str = ""
    """The listed page that it belongs to, if it is not listed itself."""
    live: bool = False
    """Whether the browser is told when something of it has changed."""

    @property
    def json(self) -> str:
        return f"{'/now' if self.address == '/' else self.address}.json"


def _of_system(address: str, title: str, read: Read, *, under: str = "", live: bool = False) -> Page:
    """Return a page for the operator alone, whose template has the name of its address."""
    template = f"{address[1:]}.html"
    return Page(
        address=address,
        template=template,
        title=title,
        read=read,
        listed=not under,
        operator=True,
        under=under,
        live=live,
    )


PAGES = (
    Page(address="/", template="now.html", title="Now", read=now.seen, operator=True, live=True),
    _of_system("/versions", "Versions", versions.listed),
    _of_system("/version", "Version", versions.one, under="/versions"),
    _of_system("/experiments", "Experiments", experiment.listed),
    _of_system("/experiment", "Experiment", experiment.one, under="/experiments", live=True),
    Page(address="/sessions", template="sessions.html", title="Sessions", read=sessions.listed),
    Page(
        address="/session",
        template="session.html",
        title="Session",
        read=session.one,
        listed=False,
        under="/sessions",
        live=True,
    ),
    _of_system("/training", "Training", training.seen),
    _of_system("/group", "Group", group.one, under="/training"),
    _of_system("/rewards", "Rewards", rewards.seen),
    _of_system("/fleet", "Fleet", fleet.seen),
    Page(address="/accounts", template="accounts.html", title="Accounts", read=accounts.seen, admin=True),
)
