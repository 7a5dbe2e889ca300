"""A new version on its way into vLLM's workers: files in memory, which all of them read.

    write ─► /dev/shm/…/model.safetensors ─► every worker maps it and loads its own part ─► removed

No process keeps a copy of its own: a worker maps the files, and vLLM's loader takes from each tensor the part
that this worker serves. This module runs in the workers, so it imports nothing but safetensors and torch.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

MEMORY = Path("/dev/shm")  # noqa: S108
"""The folder in memory where the system has one; a container's may be too small."""
SPARE_BYTES = 64 * 2**20
"""The room that is left free where a version is written."""


def read(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield names and tensors, each mapped from its file when it is asked for."""
    for path in _files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                yield name, file.get_tensor(name)


def digest(folder: Path) -> str:
    """Return the SHA-256 over the files, whose headers name every tensor with its dtype and shape."""
    total = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def room_for(size: int) -> str:
    """Return a folder with room for so many bytes, in memory if possible. Raises OSError without one."""
    candidates = [*([MEMORY] if MEMORY.is_dir() else []), Path(tempfile.gettempdir())]
    for folder in candidates:
        if shutil.disk_usage(folder).free > size + SPARE_BYTES:
            return str(folder)
    names = " and ".join(map(str, candidates))
    raise OSError(f"there is no room for {size / 1e9:.1f} GB of weights in {names}: free some")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))
