"""Templates: directories that sandboxes start from. Those that clients send are named by their content."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import IO

from starlette.requests import Request

from ostinato.fleet.protocol import archive
from ostinato.fleet.server import bodies
from ostinato.fleet.server.control import ControlError, bad_request

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Templates:
    """The templates of a server. Its operator puts directories there by hand, clients send them by `put`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    def find(self, name: str) -> Path | None:
        if not _NAME.fullmatch(name):
            return None
        path = self._directory / name
        return path if path.is_dir() else None

    def names(self) -> list[str]:
        return sorted(path.name for path in self.paths())

    def paths(self) -> list[Path]:
        return [path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]

    async def put(self, name: str, request: Request) -> None:
        """Take in an archive of `archive.pack`, unless it is here already.

        Raise ControlError 400 when its content does not match its name, 413 when it is too large.
        """
        file, actual = await bodies.store_archive(request, self._directory)
        with file:
            if name != actual:
                raise bad_request(f"this archive is {actual}, not {name!r}: pack the directory again")
            if self.find(name) is None:
                await self._unpack(name, file)

    async def _unpack(self, name: str, file: IO[bytes]) -> None:
        try:
            await asyncio.to_thread(archive.unpack, file, self._directory / name)
        except ValueError as error:
            raise bad_request(f"{name}: {error}") from error
        except OSError as error:
            if self.find(name) is None:
                raise ControlError(507, f"no room for template {name}: {error.strerror}") from error

    def packed(self, name: str) -> bytes:
        """Return the archive of a template, to send it on. Raises FileNotFoundError."""
        path = self.find(name)
        if path is None:
            raise FileNotFoundError(name)
        return archive.pack(path)[1]

    async def remove(self, name: str) -> bool:
        path = self.find(name)
        if path is None:
            return False
        await asyncio.to_thread(shutil.rmtree, path)
        return True
