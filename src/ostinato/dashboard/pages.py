"""The pages: their addresses, their titles, and the questions that they ask."""

from collections.abc import Callable
from dataclasses import dataclass

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading import now, session, sessions, versions
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
    live: bool = False
    """Whether the browser is told when something of it has changed."""

    @property
    def json(self) -> str:
        return f"{'/now' if self.address == '/' else self.address}.json"


PAGES = (
    Page(address="/", template="now.html", title="Now", read=now.seen, operator=True, live=True),
    Page(
        address="/versions", template="versions.html", title="Versions", read=versions.listed, operator=True
    ),
    Page(
        address="/version",
        template="version.html",
        title="Version",
        read=versions.one,
        listed=False,
        operator=True,
    ),
    Page(address="/sessions", template="sessions.html", title="Sessions", read=sessions.listed),
    Page(
        address="/session",
        template="session.html",
        title="Session",
        read=session.one,
        listed=False,
        live=True,
    ),
)
