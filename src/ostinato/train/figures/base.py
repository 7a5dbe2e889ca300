"""Where the figures of steps go beside the record: one small interface."""

from typing import Protocol

from ostinato.types import StepFigures


class Outlet(Protocol):
    """Passes the figures of steps on. The record has them already, so a service that is away loses none."""

    def add(self, figures: StepFigures) -> None:
        """Pass on the figures of one step; the same version may come again after a kill."""
        ...

    def close(self) -> None:
        """Pass on what is still waiting, and let go."""
        ...
