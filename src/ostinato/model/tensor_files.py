"""The weights of a checkpoint as files in Hugging Face layout, read and written one tensor at a time::

    DIR/model.safetensors                       one file, or
    DIR/model-00001-of-00002.safetensors, …     shards, and
    DIR/model.safetensors.index.json            which shard holds which tensor

Nothing here holds a second copy of a model: `tensor` reads one tensor, `write_tensors` keeps none. A file is
eight bytes with the length of a JSON header, the header, data (https://huggingface.co/docs/safetensors).
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch
from torch import Tensor

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 5 * 10**9
"""The size that a shard written by us does not pass, unless a single tensor is larger."""
HEADER_BYTES = 2**16
"""The room that a written file keeps for its header, because the header comes first and is known last.

A shard ends where its header would not fit; what is left is filled with spaces, as the format allows."""
CHECKED_VALUES = 2**22
"""The number of values that are checked for NaN at once: a whole matrix would need as much memory again."""
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
"""The files of which a checkpoint needs at least one."""
COMPANIONS = (
    *(CONFIG, "generation_config.json", *TOKENIZERS, "merges.txt", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json"),
)


class CheckpointError(Exception):
    """A checkpoint directory that is missing, unfinished or damaged; the message names it and the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """The place of one tensor: its file, where its bytes lie in it, its shape and dtype.

    >>> StoredTensor(path=Path("model.safetensors"), start=64, shape=(2, 3), dtype=torch.float32).size
    24
    """

    path: Path
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """The number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFiles:
    """The tensors of one checkpoint directory by Hugging Face name; none is read before it is asked for."""

    def __init__(self, directory: Path, entries: dict[str, StoredTensor]) -> None:
        self.directory = directory
        self.entries = entries

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Read index and headers. Raises CheckpointError for a missing or damaged file, or a missing name."""
        directory = Path(directory)
        if (directory / INDEX).exists():
            return cls(directory, _indexed(directory))
        if (directory / WEIGHTS).exists():
            return cls(directory, _header(directory / WEIGHTS))
        raise CheckpointError(f"{directory}: neither {WEIGHTS} nor {INDEX} is there: {_instead(directory)}")

    @property
    def files(self) -> list[Path]:
        """The weight files, by name."""
        return sorted({entry.path for entry in self.entries.values()})

    @property
    def size(self) -> int:
        """The number of bytes of all tensors."""
        return sum(entry.size for entry in self.entries.values())

    def entry(self, name: str) -> StoredTensor:
        """Return the place of a tensor. Raises CheckpointError if the checkpoint has none of this name."""
        try:
            return self.entries[name]
        except KeyError as error:
            raise CheckpointError(
                f"{self.directory}: there is no tensor {name}: config.json and weights are of two checkpoints"
            ) from error

    def tensor(self, name: str) -> Tensor:
        """Read one tensor. Raises CheckpointError if it is missing, cut off or not finite."""
        entry = self.entry(name)
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        room = _bytes(tensor)
        try:
            with entry.path.open("rb", buffering=0) as file:
                file.seek(entry.start)
                while room and (count := file.readinto(room)):
                    room = room[count:]
        except OSError as error:
            raise CheckpointError(f"{entry.path} cannot be read: {error}") from error
        if room:
            raise CheckpointError(f"{entry.path} ends within {name}: download or copy the file again")
        if not finite(tensor):
            raise CheckpointError(f"{entry.path}: {name} holds NaN or infinite values: get another copy")
        return tensor

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Read every tensor in turn, file by file."""
        for name, _ in sorted(self.entries.items(), key=lambda item: (item[1].path, item[1].start)):
            yield name, self.tensor(name)

    def digest(self) -> str:
        """Return the sha256 over the bytes of all weight files, in the order of their names."""
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                while piece := file.read(2**20):
                    digest.update(piece)
        return digest.hexdigest()


def finite(tensor: Tensor) -> bool:
    """Return whether no value is NaN or infinite, without a copy of the tensor."""
    if not tensor.dtype.is_floating_point:
        return True
    return all(bool(torch.isfinite(part).all()) for part in torch.split(tensor.reshape(-1), CHECKED_VALUES))


def write_tensors(
    directory: Path, tensors: Iterable[tuple[str, Tensor]], max_shard_bytes: int = SHARD_BYTES
) -> None:
    """Write weights, each tensor as it comes, in shards where they are larger than `max_shard_bytes`.

    Files that were there stay until all new ones are complete. Raises CheckpointError for a name that comes
    twice or a dtype without a place in the format, and OSError; then no new file is left.
    """
    directory = Path(directory)
    shards: list[_Shard] = []
    try:
        names: set[str] = set()
        for name, tensor in tensors:
            if name in names:
                raise CheckpointError(f"{directory}: the tensor {name} was given twice")
            names.add(name)
            if not shards or not shards[-1].takes(name, tensor, max_shard_bytes):
                if shards:
                    shards[-1].close()
                shards.append(_Shard(directory / f"model-{len(shards) + 1:05}.partial"))
            shards[-1].add(name, tensor)
        if not shards:
            raise CheckpointError(f"{directory}: there are no tensors to write")
        shards[-1].close()
        _publish(directory, shards)
    finally:
        for shard in shards:
            shard.discard()


def copy_companions(source: Path, target: Path) -> None:
    """Copy what belongs to a checkpoint beside its weights: config, tokenizer and chat template.

    Raises CheckpointError if config or tokenizer is missing, OSError if the disk refuses.
    """
    if not (source / CONFIG).is_file():
        raise CheckpointError(f"{source}: {CONFIG} is missing: is this a checkpoint directory?")
    if not any((source / name).is_file() for name in TOKENIZERS):
        raise CheckpointError(f"{source}: there is no tokenizer: copy tokenizer.json of the model there")
    target.mkdir(parents=True, exist_ok=True)
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises CheckpointError, which names the file."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent}: {path.name} is missing: is this a checkpoint directory?"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.parent}: {path.name} is not a JSON object")
    return content


class _Shard:
    """A safetensors file that grows; its header is written when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        self.size = 0
        self._room = HEADER_BYTES - len(json.dumps(self.header))
        self._file: BinaryIO = path.open("wb")
        self._file.seek(8 + HEADER_BYTES)

    def takes(self, name: str, tensor: Tensor, most: int) -> bool:
        return self.size + tensor.nbytes <= most and self._words(name, tensor) <= self._room

    def add(self, name: str, tensor: Tensor) -> None:
        self._room -= self._words(name, tensor)
        self.header[name] = self._entry(name, tensor)
        whole = tensor.detach().cpu().contiguous()
        self._file.write(_bytes(whole))
        self.size += whole.nbytes

    def close(self) -> None:
        content = json.dumps(self.header).encode()
        length = max(HEADER_BYTES, len(content))
        if length > HEADER_BYTES:
            raise CheckpointError(f"{self.path}: the name of a tensor is longer than a header has room for")
        self._file.seek(0)
        self._file.write(length.to_bytes(8, "little") + content.ljust(length))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Remove the file unless it has been renamed."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _words(self, name: str, tensor: Tensor) -> int:
        return len(json.dumps({name: self._entry(name, tensor)}))

    def _entry(self, name: str, tensor: Tensor) -> dict[str, Any]:
        if tensor.dtype not in NAMES:
            raise CheckpointError(f"{name} is {tensor.dtype}, which has no place here: convert it first")
        offsets = [self.size, self.size + tensor.nbytes]
        return {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}


def _publish(directory: Path, shards: list[_Shard]) -> None:
    """Give complete files their names, after the old ones are gone."""
    for old in (*directory.glob("model-*-of-*.safetensors"), directory / INDEX, directory / WEIGHTS):
        old.unlink(missing_ok=True)
    if len(shards) == 1:
        shards[0].path.replace(directory / WEIGHTS)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        places |= dict.fromkeys(shard.header.keys() - {"__metadata__"}, name)
        shard.path.replace(directory / name)
    index = {"metadata": {"total_size": sum(shard.size for shard in shards)}, "weight_map": places}
    draft = directory / f"{INDEX}.partial"
    draft.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    draft.replace(directory / INDEX)


def _indexed(directory: Path) -> dict[str, StoredTensor]:
    places = read_json(directory / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{directory}: {INDEX} has no weight_map: get another copy of it")
    entries: dict[str, StoredTensor] = {}
    for file in sorted(set(places.values())):
        path = directory / file
        if path.parent != directory:
            raise CheckpointError(f"{directory}: {INDEX} names {file}, which is not in the directory")
        if not path.is_file():
            raise CheckpointError(f"{directory}: the shard {file} is missing: download or copy it again")
        held = _header(path)
        for name in (name for name, place in places.items() if place == file):
            if name not in held:
                raise CheckpointError(f"{path}: {name} is not in it, though {INDEX} says so: get both again")
            entries[name] = held[name]
    return entries


def _header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file; every one of them lies within it."""
    try:
        with path.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= total - 8:
                raise ValueError("it is cut off or not a safetensors file")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        return {name: _entry(path, 8 + length, total, words) for name, words in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"{path.parent}: {path.name} cannot be read: {error}: download or copy it again"
        ) from error


def _entry(path: Path, base: int, total: int, words: dict[str, Any]) -> StoredTensor:
    if words["dtype"] not in DTYPES:
        raise ValueError(f"it holds {words['dtype']} values, which is none of {', '.join(DTYPES)}")
    start, end = (int(n) for n in words["data_offsets"])
    shape = tuple(int(n) for n in words["shape"])
    entry = StoredTensor(path=path, start=base + start, shape=shape, dtype=DTYPES[words["dtype"]])
    if start < 0 or min(shape, default=0) < 0 or end - start != entry.size or base + end > total:
        raise ValueError("it is cut off, or its header is damaged")
    return entry


def _bytes(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous tensor."""
    return tensor.view(-1).view(torch.uint8).numpy().data


def _instead(directory: Path) -> str:
    """Return what to do about weights that are missing."""
    if any(directory.glob("*.gguf")):
        return "import the GGUF file with `ostinato weights import`"
    if any(directory.glob("*.bin")):
        return "convert its .bin files to safetensors"
    return "download or copy them"
