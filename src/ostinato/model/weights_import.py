"""The import of weights that lie elsewhere: a GGUF file or a directory becomes a checkpoint of ours.

Tensors are dequantised and written one at a time, in a directory beside the target; it gets the target's name
when it is complete. The extra `hf` brings what GGUF needs.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ostinato import extras
from ostinato.model.checkpoint import CheckpointMeta, compare, shapes
from ostinato.model.config import META, ModelConfig, ModelConfigError
from ostinato.model.tensor_files import (
    CONFIG,
    CheckpointError,
    TensorFiles,
    copy_companions,
    finite,
    read_json,
    write_tensors,
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SPARE_BYTES = 64 * 2**20
"""The room on the disk that is asked for beside the weights: tokenizer, headers, the file system's own."""
GGUF_FAMILIES = ("llama", "qwen2", "qwen3", "qwen3moe")
"""The values of `general.architecture` that are imported."""
SPECIAL = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
}
STEMS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
"""The words of GGUF for the parts of a layer (gguf-py, `tensor_mapping.py`) and those of Hugging Face."""


def import_weights(source: Path, target: Path, dtype: str | None = None) -> int:
    """Write `source`, a GGUF file or a Hugging Face directory, as a checkpoint; return the bytes of weights.

    `dtype` is float32, bfloat16 or float16; None keeps that of a directory and makes float32 of GGUF.
    Raises CheckpointError, and leaves nothing behind, for what cannot be read, a target that exists and a
    disk that is too small.
    """
    source, target = Path(source), Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists already: remove it or name another directory")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise CheckpointError(f"{target} cannot be written: {error}") from error
    try:
        if source.is_dir():
            _import_directory(source, draft, DTYPES[dtype] if dtype else None)
        else:
            _import_gguf(source, draft, DTYPES[dtype or "float32"])
        files = TensorFiles.open(draft)
        meta = CheckpointMeta(version=0, digest=files.digest())
        (draft / META).write_text(json.dumps(asdict(meta)) + "\n")
        draft.chmod(0o755)
        draft.rename(target)
        return files.size
    except OSError as error:
        raise CheckpointError(f"{source} was not imported: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _import_directory(source: Path, draft: Path, dtype: torch.dtype | None) -> None:
    files = TensorFiles.open(source)
    floats = [entry for entry in files.entries.values() if entry.dtype.is_floating_point]
    kept = sum(entry.size for entry in files.entries.values()) - sum(entry.size for entry in floats)
    values = sum(entry.size // entry.dtype.itemsize for entry in floats)
    _check_room(draft, kept + values * dtype.itemsize if dtype else files.size)
    copy_companions(source, draft)
    if dtype is not None:
        _state_dtype(draft, read_json(source / CONFIG), dtype)
    write_tensors(draft, ((name, _converted(tensor, dtype)) for name, tensor in files))


def _import_gguf(source: Path, draft: Path, dtype: torch.dtype) -> None:
    reader = _reader(source)
    _check_room(draft, sum(int(tensor.n_elements) for tensor in reader.tensors) * dtype.itemsize)
    config = _config(source, reader)
    fields = config.to_hf() | {
        f"{word}_token_id": reader.fields[key].contents()
        for word, key in SPECIAL.items()
        if key in reader.fields
    }
    _state_dtype(draft, fields, dtype)
    _write_tokenizer(source, draft)
    write_tensors(draft, ((name, _converted(tensor, dtype)) for name, tensor in _tensors(reader, config)))
    compare(TensorFiles.open(draft), shapes(draft))


def _reader(source: Path) -> Any:
    """Return gguf's reader of the file. Raises CheckpointError unless it is of a family known here."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise CheckpointError(extras.sentence("gguf", f"{source}: GGUF")) from error
    if not source.is_file():
        raise CheckpointError(f"{source} is neither a GGUF file nor a directory")
    try:
        reader = GGUFReader(source)
        family = reader.fields["general.architecture"].contents()
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise CheckpointError(f"{source} is no complete GGUF file: {error}: download it again") from error
    if family not in GGUF_FAMILIES:
        raise CheckpointError(
            f"{source}: the architecture {family!r} is not imported ({', '.join(GGUF_FAMILIES)} are): "
            "use the model's safetensors"
        )
    return reader


def _config(source: Path, reader: Any) -> ModelConfig:
    """Return the shape that the file's metadata gives. Raises CheckpointError if a field is missing."""
    family = reader.fields["general.architecture"].contents()
    shapes = {tensor.name: [int(n) for n in tensor.shape] for tensor in reader.tensors}

    def read(name: str, default: Any = None) -> Any:
        field = reader.fields.get(f"{family}.{name}")
        if field is None and default is None:
            raise CheckpointError(f"{source} has no field {family}.{name}: get another copy")
        return default if field is None else field.contents()

    if (scaling := read("rope.scaling.type", "none")) != "none":
        raise CheckpointError(f"{source}: rope scaling {scaling!r} is not imported: use the safetensors")
    heads, hidden = read("attention.head_count"), read("embedding_length")
    experts = read("expert_count", 0)
    try:
        return ModelConfig(
            vocab_size=shapes["token_embd.weight"][1],
            hidden_size=hidden,
            layers=read("block_count"),
            heads=heads,
            kv_heads=read("attention.head_count_kv", heads),
            head_dim=read("attention.key_length", hidden // heads),
            intermediate_size=read("feed_forward_length"),
            experts=experts,
            experts_per_token=read("expert_used_count") if experts else 2,
            expert_size=read("expert_feed_forward_length") if experts else 96,
            qk_norm=family in ("qwen3", "qwen3moe"),
            attention_bias=family == "qwen2",
            rope_theta=read("rope.freq_base", 10_000.0),
            rms_eps=read("attention.layer_norm_rms_epsilon"),
            tied="output.weight" not in shapes,
            max_positions=read("context_length"),
        )
    except (KeyError, ModelConfigError) as error:
        raise CheckpointError(f"{source} has no shape known here: {error}") from error


def _write_tokenizer(source: Path, draft: Path) -> None:
    """Write tokenizer and chat template as transformers reads them."""
    from transformers import AutoTokenizer

    try:
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(draft)
    except (ValueError, KeyError, OSError, NotImplementedError) as error:
        raise CheckpointError(f"{source}: transformers cannot read its tokenizer: {error}") from error


def _tensors(reader: Any, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors under Hugging Face names in float32, in the order of the file."""
    from gguf import dequantize

    for stored in reader.tensors:
        name, turn = _name(stored.name), _turned(stored.name, config)
        tensor = torch.from_numpy(np.require(dequantize(stored.data, stored.tensor_type), requirements="W"))
        if not finite(tensor):
            raise CheckpointError(f"{stored.name} holds NaN or infinite values: get another copy")
        if "{}" not in name:
            yield name, turn(tensor)
            continue
        for number, expert in enumerate(tensor):
            yield name.format(number), expert


def _name(given: str) -> str:
    """Return the Hugging Face name for a name of GGUF. Raises CheckpointError if there is none."""
    if found := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", given):
        layer, part, kind = found.groups()
        if part in PARTS:
            return f"model.layers.{layer}.{PARTS[part]}.{kind}"
    stem, _, kind = given.rpartition(".")
    if stem in STEMS and kind == "weight":
        return f"{STEMS[stem]}.{kind}"
    raise CheckpointError(f"the tensor {given} has no place in this family: use the model's safetensors")


def _turned(name: str, config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Return what undoes llama.cpp's order of the rows of q and k, which it changes for Llama alone."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2])
    if heads is None or config.model_type != "llama":
        return lambda tensor: tensor
    return lambda t: t.view(heads, len(t) // heads // 2, 2, *t.shape[1:]).transpose(1, 2).reshape(t.shape)


def _converted(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype is not None and tensor.dtype.is_floating_point else tensor


def _state_dtype(draft: Path, fields: dict[str, Any], dtype: torch.dtype) -> None:
    """Write the config with this dtype, under the name of transformers 5 and the one before."""
    name = str(dtype).removeprefix("torch.")
    (draft / CONFIG).write_text(json.dumps(fields | {"dtype": name, "torch_dtype": name}, indent=2) + "\n")


def _check_room(draft: Path, weights: int) -> None:
    free = shutil.disk_usage(draft).free
    if free < weights + SPARE_BYTES:
        raise CheckpointError(
            f"{draft.parent} has {free / 1e9:.1f} GB free, the weights need {weights / 1e9:.1f} GB: make room"
        )
