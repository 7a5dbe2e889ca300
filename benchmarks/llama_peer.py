"""llama.cpp as the peer of a benchmark: its weights in float32 as GGUF, its process, the CPU time of that.

llama.cpp comes from the package `xllamacpp`, in an environment whose Python `OSTINATO_LLAMACPP` names.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import torch

from benchmarks.vllm_peer import Worker, worker
from ostinato.model.decoder import Decoder
from ostinato.model.weights_import import PARTS, STEMS

VARIABLE = "OSTINATO_LLAMACPP"


def missing() -> str | None:
    """Return the reason why llama.cpp cannot be used, None when it can."""
    if not os.environ.get(VARIABLE):
        return f"{VARIABLE} names no Python that has xllamacpp"
    return None


def write(decoder: Decoder, path: Path) -> None:
    """Write a dense model in float32 with a vocabulary of numbers; ids go in and out as they are."""
    config = decoder.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_token_merges(["t 0"])
    for name, tensor in decoder.state_dict().items():
        writer.add_tensor(_name(name), _rows(name, tensor, decoder).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def llamacpp(decoder: Decoder, directory: Path, max_len: int, slots: int) -> Iterator[Worker]:
    """Start llama.cpp on these weights; it responds to the first request once it is ready."""
    path = directory / "model.gguf"
    write(decoder, path)
    script = str(Path(__file__).with_name("llama_worker.py"))
    command = [os.environ.get(VARIABLE, sys.executable), script, str(path), str(max_len), str(slots)]
    with worker(command, {}) as started:
        yield started


def _name(given: str) -> str:
    back = {theirs: ours for ours, theirs in (PARTS | STEMS).items()}
    stem, kind = given.rsplit(".", 1)
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"{back[stem]}.{kind}" if stem in back else f"blk.{layer}.{back[part]}.{kind}"


def _rows(name: str, tensor: torch.Tensor, decoder: Decoder) -> torch.Tensor:
    """Return the tensor with llama.cpp's order of the rows of Llama's q and k."""
    counts = {"q_proj": decoder.config.heads, "k_proj": decoder.config.kv_heads}
    heads = counts.get(name.split(".")[-2])
    if heads is None or decoder.config.model_type != "llama":
        return tensor
    return tensor.view(heads, 2, -1, tensor.shape[-1]).transpose(1, 2).reshape(tensor.shape).contiguous()
