"""What a foreign engine has to offer."""

from typing import Protocol

LIFE_S = 3600
"""Seconds after which an engine ends a sandbox by itself, should nobody be left to end it."""


class ForeignMachine(Protocol):
    """One sandbox of an engine, which is a file system and commands. Every call raises SandboxError when the
    engine fails, and no error of the code that runs there.
    """

    id: str

    async def run(self, command: str, within_s: float) -> str:
        """Run a command in the engine's own folder; return its standard output, whatever its exit status.

        The command contains nothing that a shell would change, because not every engine has one.
        """

    async def upload(self, path: str, data: bytes) -> None:
        """Write a file, by a path relative to the engine's own folder."""

    async def download(self, path: str) -> bytes:
        """Read a file, by a path relative to the engine's own folder. Raises FileNotFoundError."""

    async def end(self) -> None:
        """End the sandbox; does nothing when it has ended."""


class ForeignEngine(Protocol):
    """Starts machines."""

    name: str

    @property
    def lost(self) -> tuple[str, ...]:
        """One sentence for each thing that the engine does not do, besides those of every foreign engine."""

    async def start(self) -> ForeignMachine:
        """Start a machine, which ends after LIFE_S. Raises SandboxError."""
