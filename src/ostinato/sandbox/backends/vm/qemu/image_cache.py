"""Images that outlive the process which made them, each under the digest of all that it was made of.

KEY.lock   locked exclusively by the process that makes KEY, shared by those that use it
KEY        the image, renamed to this name when it is complete
part-*     an image that is being made, or the rest of one that was not finished
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
_MAX_UNUSED = 3
"""The number of unused images that stay: of other Pythons, other packages, an older ostinato."""


def cache() -> Path:
    """Return the directory of images for all processes of a user."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "ostinato" / "vm"


class ImageLock:
    """The lock of the image in `directory`: one process makes it, and none removes it while it is used."""

    def __init__(self, directory: Path) -> None:
        """Open the lock without taking it; raises SandboxError where no image can be stored."""
        self.directory = directory
        try:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _open(directory)
        except OSError as error:
            raise SandboxError(
                f"no image for guests can be stored in {directory.parent}: {error}; name a state directory"
            ) from error

    def share(self) -> bool:
        """Wait until no process makes the image; return True when it exists."""
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        return self._whole()

    def own(self) -> bool:
        """Wait until no other process makes or uses the image; return True when it exists after all."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._whole()

    def _whole(self) -> bool:
        whole = self.directory / WHOLE
        if not whole.exists():
            return False
        os.utime(whole)
        return True

    def begin(self) -> Path:
        """Return a directory to make the image in."""
        return Path(tempfile.mkdtemp(prefix="part-", dir=self.directory.parent))

    def finish(self, part: Path) -> None:
        """Make the files in `part` the image, and remove the images that were unused for longest."""
        shutil.rmtree(self.directory, ignore_errors=not self.directory.exists())
        part.rename(self.directory)
        images = [each.parent for each in self.directory.parent.glob(f"*/{WHOLE}")]
        for old in sorted(images, key=lambda each: (each / WHOLE).stat().st_mtime)[: -_MAX_UNUSED or None]:
            _remove_unused(old)

    def release(self) -> None:
        os.close(self._lock)


def _remove_unused(directory: Path) -> None:
    lock = _open(directory)
    try:
        with suppress(BlockingIOError):  # a process uses it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
    finally:
        os.close(lock)


def _open(directory: Path) -> int:
    """Open the file of an image's lock, which is never removed: a process might hold the removed one."""
    return os.open(directory.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
