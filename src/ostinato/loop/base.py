"""Protocols of the loop: a display for a person, a source of live sessions, and the resources of a cycle."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar

from ostinato.loop.config import RunConfig
from ostinato.loop.results import Counters
from ostinato.loop.run import Run
from ostinato.store import Store
from ostinato.types import Arm, Completion, GenerateRequest, Session

T = TypeVar("T")

Period = Literal["live", "ab"]
"""The part of a cycle that sessions come in: before the collection, or while a candidate is released."""


class ProgressBar(Protocol):
    """The progress of one stage."""

    def at(self, done: float, line: str = "") -> None:
        """Set how much of the total is done, and the text beside the bar."""

    def more(self, line: str = "") -> None:
        """Count one more as done."""


class Display(Protocol):
    """The place where a run tells a person what it does."""

    def say(self, text: str) -> None:
        """Print one line."""

    def stage(self, name: str, total: float) -> AbstractContextManager[ProgressBar]:
        """Show the progress of one stage while the block runs."""


class LiveTraffic(Protocol):
    """The source of live sessions; the arms in the store say which version serves each user."""

    async def arrive(
        self, period: Period, since: float, sessions: int, *, closes_at: float = math.inf
    ) -> None:
        """Wait for so many sessions: in a release, of those that began at `since` or later, until they have
        ended; before a collection, until they can be learnt from.

        That wait ends at `closes_at` too, with fewer of them. Times are in seconds since the epoch.
        """

    def clock(self) -> float:
        """Return the time by which attribution windows are judged, in seconds since the epoch."""

    def strata(self, sessions: Sequence[Session]) -> Mapping[str, str]:
        """Return the strata of sessions that are compared with each other, as `rollout.collect.StrataOf`."""


class Site(Protocol):
    """A running engine."""

    @property
    def url(self) -> str:
        """Its address."""


class Engines(Protocol):
    """A client of engines past the gateway: what it asks is recorded nowhere."""

    async def generate(
        self, pool: Callable[[], Awaitable[Sequence[str]]], request: GenerateRequest
    ) -> Completion:
        """Return the answer of one of these engines. Raises ApiError when none answers."""

    async def aclose(self) -> None:
        """Close the connections."""


class Resources(Protocol):
    """The open resources of a run as its cycles use them: the resources's, or those of a simulated week."""

    config: RunConfig
    run: Run
    show: Display
    store: Store
    poll_s: float
    """The pause between two looks at a release, in seconds of the store's clock."""

    async def stage(self, name: str, schema: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """Return the stage's result: from the run folder if the stage is done, else from doing it."""

    def serving(self, arm: Arm) -> AbstractAsyncContextManager[Site]:
        """Serve the version of `arm` while the block runs; an arm that is there keeps its traffic."""

    def put_arm(self, arm: Arm) -> None:
        """Add or replace one arm; the others stay."""

    async def counters(self, engine: Any) -> Counters:
        """Return what an engine counted so far."""

    def engines(self, patience_s: float) -> Engines:
        """Return a client of engines that waits so long for an answer."""

    def client(self, user: str, arm: str | None = None) -> Any:
        """Return a connection to the gateway; one with an arm always meets that arm's version."""

    def runner(self, client: Any, profile: str | None = None) -> Any:
        """Return what runs the sessions of a benchmark through that connection (an `EpisodeRunner`), under
        the run's own profile or under another one."""

    async def train(self, name: str, module: str, settings: Any, tick: Callable[[], None]) -> None:
        """Run a trainer to its end, with `tick` called now and then. Raises ServiceError when it fails."""
