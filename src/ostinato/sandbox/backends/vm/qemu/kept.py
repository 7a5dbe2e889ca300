"""Images that outlive the process which made them, each under the digest of all that went into it.

KEY.lock   locked alone by who makes KEY, shared by who uses it
KEY        the image, renamed to this name when it is whole
part-*     one in the making, or what is left of that
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from ostinato.sandbox.base import SandboxError

WHOLE = "boot"
"""The file that is written last."""
_KEPT = 3
"""Images that nobody uses: of other Pythons, other packages, an older ostinato."""


def cache() -> Path:
    """Where they are kept for all processes of a user."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "ostinato" / "vm"


class ImageLock:
    """That the image `directory` is needed: nobody makes it at the same time, nobody removes it."""

    def __init__(self, directory: Path) -> None:
        """Raises SandboxError where nothing can be kept."""
        self.directory = directory
        try:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _open(directory)
        except OSError as error:
            raise SandboxError(
                f"no image for guests can be kept in {directory.parent}: {error}; name a state directory"
            ) from error

    def share(self) -> bool:
        """Wait until nobody makes it; answers whether it is there."""
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        return self._whole()

    def own(self) -> bool:
        """Wait until nobody else makes or uses it; answers whether it is there after all."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._whole()

    def _whole(self) -> bool:
        whole = self.directory / WHOLE
        if not whole.exists():
            return False
        os.utime(whole)
        return True

    def begin(self) -> Path:
        """A directory to make it in."""
        return Path(tempfile.mkdtemp(prefix="part-", dir=self.directory.parent))

    def finish(self, part: Path) -> None:
        """Keep what was made there, instead of what nobody has used for longest."""
        shutil.rmtree(self.directory, ignore_errors=not self.directory.exists())
        part.rename(self.directory)
        found = [each.parent for each in self.directory.parent.glob(f"*/{WHOLE}")]
        for old in sorted(found, key=lambda each: (each / WHOLE).stat().st_mtime)[: -_KEPT or None]:
            _remove_unused(old)

    def release(self) -> None:
        os.close(self._lock)


def _remove_unused(directory: Path) -> None:
    lock = _open(directory)
    try:
        with suppress(BlockingIOError):  # somebody uses it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
    finally:
        os.close(lock)


def _open(directory: Path) -> int:
    """Its lock, which is never removed: another process might hold one that has no name any more."""
    return os.open(directory.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
