"""A new version on its way into vLLM's workers: files in memory, which all of them read.

    write ─► /dev/shm/…/model.safetensors ─► every worker maps it and loads its own part ─► removed

No process keeps a copy of its own: a worker maps the files, and vLLM's loader takes from each tensor the part
that this worker serves. This module runs in the workers, so it imports nothing but safetensors and torch.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open
from torch import Tensor


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


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))
