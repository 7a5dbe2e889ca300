"""Directories that sandboxes start from, by name. Those that clients send are named by their content."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import IO

from starlette.requests import Request

from ostinato.fleet.protocol import bundle
from ostinato.fleet.server import bodies
from ostinato.fleet.server.wishes import ControlError, bad

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Templates:
    """A directory of directories. Whoever runs the server puts templates there by hand, clients by `put`."""

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
        """Takes in an archive of `bundle.pack`; once is enough. ControlError 400 when it is another, 413."""
        file, found = await bodies.archive(request, self._directory)
        with file:
            if name != found:
                raise bad(f"this archive is {found}, not {name!r}: pack the directory again")
            if self.find(name) is None:
                await self._unpack(name, file)

    async def _unpack(self, name: str, file: IO[bytes]) -> None:
        try:
            await asyncio.to_thread(bundle.unpack, file, self._directory / name)
        except ValueError as error:
            raise bad(f"{name}: {error}") from error
        except OSError as error:
            if self.find(name) is None:
                raise ControlError(507, f"no room for template {name}: {error.strerror}") from error

    def packed(self, name: str) -> bytes:
        """The archive of a template, to send it on. Raises FileNotFoundError."""
        path = self.find(name)
        if path is None:
            raise FileNotFoundError(name)
        return bundle.pack(path)[1]

    async def remove(self, name: str) -> bool:
        path = self.find(name)
        if path is None:
            return False
        await asyncio.to_thread(shutil.rmtree, path)
        return True
