"""The form of a model on disk, in Hugging Face layout::

    DIR/config.json        shape: llama, qwen2, qwen3 or qwen3_moe
    DIR/model.safetensors  weights under Hugging Face names, or shards of them with an index
    DIR/tokenizer.json     (and tokenizer_config.json with the chat template)
    DIR/ostinato.json      version, parent, harness it is trained under, sha256 over the weight files

`save` writes `ostinato.json` last: a directory without it was not finished.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from ostinato.model.config import META, ModelConfig, ModelConfigError
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import CONFIG, CheckpointError, TensorFiles, read_json, write_tensors
from ostinato.model.tokenizer import Tokenizer, TokenizerError

HEAD = "lm_head.weight"
BUFFERS = ("rotary_emb.inv_freq", ".masked_bias", ".attn.bias")
"""Endings of names that old checkpoints hold beside the weights, and that follow from the shape."""


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
        write_tensors(directory, decoder.state_dict().items())
    except (OSError, ModelConfigError) as error:
        raise CheckpointError(f"{directory}: the checkpoint could not be written: {error}") from error
    return finish(directory, version=version, parent=parent, harness=harness)


def finish(directory: Path, *, version: int, parent: int | None = None, harness: str = "") -> CheckpointMeta:
    """Write `ostinato.json` beside weights that are complete. Raises CheckpointError."""
    try:
        digest = TensorFiles.open(directory).digest()
        meta = CheckpointMeta(version=version, parent=parent, digest=digest, harness=harness)
        (directory / META).write_text(json.dumps(asdict(meta)) + "\n")
    except OSError as error:
        raise CheckpointError(f"{directory}: the checkpoint could not be written: {error}") from error
    return meta


def load(directory: Path) -> tuple[Decoder, Tokenizer, CheckpointMeta]:
    """Read a checkpoint of ostinato or of Hugging Face, in float32. Raises CheckpointError."""
    directory = Path(directory)
    config = load_config(directory)
    try:
        tokenizer = Tokenizer.load(directory)
    except TokenizerError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{directory}: tokenizer.json has {tokenizer.vocab_size} ids, {CONFIG} only "
            f"{config.vocab_size}: they do not belong to one checkpoint"
        )
    meta = load_meta(directory)
    return load_decoder(directory, config, meta), tokenizer, meta


def load_decoder(directory: Path, config: ModelConfig, meta: CheckpointMeta) -> Decoder:
    """Read the weights, one tensor at a time, into a decoder of this shape. Raises CheckpointError."""
    files = TensorFiles.open(directory)
    if meta.digest and files.digest() != meta.digest:
        names = ", ".join(path.name for path in files.files)
        raise CheckpointError(f"{directory}: {names} is damaged: its sha256 is not the one in {META}")
    decoder = Decoder(config, initialise=False)
    own = decoder.state_dict()
    compare(files, own)
    for name, tensor in own.items():
        tensor.copy_(files.tensor(name))
    return decoder


def load_config(directory: Path) -> ModelConfig:
    try:
        return ModelConfig.from_hf(read_json(Path(directory) / CONFIG))
    except ModelConfigError as error:
        raise CheckpointError(f"{directory}: {error}") from error


def shapes(directory: Path) -> dict[str, Tensor]:
    """Return the weights of `load` as tensors without values or memory; raises CheckpointError."""
    with torch.device("meta"):
        return dict(Decoder(load_config(directory), initialise=False).state_dict())


def load_meta(directory: Path) -> CheckpointMeta:
    """Return version, parent and digest; version 0 for a directory that ostinato did not write."""
    if not (Path(directory) / META).exists():
        return CheckpointMeta(version=0)
    try:
        return CheckpointMeta(**read_json(Path(directory) / META))
    except TypeError as error:
        raise CheckpointError(f"{directory}: {META} is not one of ostinato's: {error}") from error


def compare(files: TensorFiles, own: dict[str, Tensor]) -> None:
    """Raise CheckpointError unless the files hold every tensor in its shape, and no other."""
    given = {name for name in files.entries if not name.endswith(BUFFERS)} - ({HEAD} - own.keys())
    missing, surplus = sorted(own.keys() - given), sorted(given - own.keys())
    if missing or surplus:
        raise CheckpointError(
            f"{files.directory}: the weights are not those of {CONFIG}: missing {missing[:3]}, "
            f"unknown {surplus[:3]}"
        )
    for name, tensor in own.items():
        entry = files.entry(name)
        if entry.shape != tuple(tensor.shape):
            raise CheckpointError(
                f"{entry.path}: {name} has shape {list(entry.shape)}, {CONFIG} expects {list(tensor.shape)}"
            )
