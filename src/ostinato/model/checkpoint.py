"""The form of a model on disk, in Hugging Face layout::

    DIR/config.json        shape (qwen3 or qwen3_moe)
    DIR/model.safetensors  weights under Hugging Face names, float32
    DIR/tokenizer.json     (and tokenizer_config.json with the chat template)
    DIR/ostinato.json      version, parent, harness it is trained under, sha256 of model.safetensors

`save` writes `ostinato.json` last: a directory without it was not finished.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ostinato.model.config import ModelConfig, ModelConfigError
from ostinato.model.decoder import Decoder, WeightsError
from ostinato.model.tokenizer import Tokenizer, TokenizerError

WEIGHTS, CONFIG, META = "model.safetensors", "config.json", "ostinato.json"


class CheckpointError(Exception):
    """A checkpoint directory that is missing, unfinished or damaged; the message names it and the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """The place of a checkpoint in the lineage; a foreign one has version 0 and an empty digest.

    >>> CheckpointMeta(version=3, parent=2, digest="9f").parent
    2
    """

    version: int
    parent: int | None = None
    digest: str = ""
    harness: str = ""
    """Hash of the harness profile that it is trained under; empty for a foreign checkpoint."""


def save(
    directory: Path,
    decoder: Decoder,
    tokenizer: Tokenizer,
    *,
    version: int,
    parent: int | None = None,
    harness: str = "",
) -> CheckpointMeta:
    """Write a checkpoint. Raises CheckpointError if the disk or the layout refuses it."""
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / META).unlink(missing_ok=True)
        (directory / CONFIG).write_text(json.dumps(decoder.config.to_hf(), indent=2) + "\n")
        tokenizer.save(directory)
        tensors = {name: tensor.clone() for name, tensor in decoder.state_dict().items()}
        save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
        digest = _digest(directory / WEIGHTS)
        meta = CheckpointMeta(version=version, parent=parent, digest=digest, harness=harness)
        (directory / META).write_text(json.dumps(asdict(meta)) + "\n")
    except (OSError, SafetensorError, ModelConfigError) as error:
        raise CheckpointError(f"{directory}: the checkpoint could not be written: {error}") from error
    return meta


def load(directory: Path) -> tuple[Decoder, Tokenizer, CheckpointMeta]:
    """Read a checkpoint of ostinato or of Hugging Face. Raises CheckpointError."""
    directory = Path(directory)
    decoder = Decoder(load_config(directory))
    meta = load_meta(directory)
    try:
        decoder.load_state_dict(_weights(directory, meta, tied=decoder.config.tied))
        tokenizer = Tokenizer.load(directory)
    except (WeightsError, TokenizerError) as error:
        raise CheckpointError(f"{directory}: {error}") from error
    if tokenizer.vocab_size > decoder.config.vocab_size:
        raise CheckpointError(
            f"{directory}: tokenizer.json has {tokenizer.vocab_size} ids, {CONFIG} only "
            f"{decoder.config.vocab_size}: they do not belong to one checkpoint"
        )
    return decoder, tokenizer, meta


def load_config(directory: Path) -> ModelConfig:
    try:
        return ModelConfig.from_hf(_json(Path(directory), CONFIG))
    except ModelConfigError as error:
        raise CheckpointError(f"{directory}: {error}") from error


def shapes(directory: Path) -> dict[str, torch.Tensor]:
    """Return the weights of `load` as tensors without values or memory; raises CheckpointError."""
    with torch.device("meta"):
        return dict(Decoder(load_config(directory)).state_dict())


def load_meta(directory: Path) -> CheckpointMeta:
    """Return version, parent and digest; version 0 for a directory that ostinato did not write."""
    if not (Path(directory) / META).exists():
        return CheckpointMeta(version=0)
    try:
        return CheckpointMeta(**_json(Path(directory), META))
    except TypeError as error:
        raise CheckpointError(f"{directory}: {META} is not one of ostinato's: {error}") from error


def _weights(directory: Path, meta: CheckpointMeta, *, tied: bool) -> dict[str, torch.Tensor]:
    path = directory / WEIGHTS
    if not path.exists():
        raise CheckpointError(f"{directory}: {WEIGHTS} is missing (sharded checkpoints are not read)")
    if meta.digest and _digest(path) != meta.digest:
        raise CheckpointError(f"{directory}: {WEIGHTS} is damaged: its sha256 is not the one in {META}")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{directory}: {WEIGHTS} cannot be read: {error}") from error
    if tied:
        tensors.pop("lm_head.weight", None)
    return tensors


def _json(directory: Path, name: str) -> dict[str, Any]:
    path = directory / name
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise CheckpointError(f"{directory}: {name} is missing: is this a checkpoint directory?") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory}: {name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{directory}: {name} is not a JSON object")
    return content


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
