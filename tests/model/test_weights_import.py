"""An imported model has, to the bit, the weights that transformers makes of the file, or is not there."""

import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from tests.model.toolbox import tokenizer
from transformers import AutoModelForCausalLM

from ostinato.model import weights_import
from ostinato.model.checkpoint import load, load_meta, save
from ostinato.model.config import ModelConfig, RopeScaling
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import CheckpointError, TensorFiles, write_tensors
from ostinato.model.weights_import import PARTS, STEMS, import_weights

SIZES: dict[str, Any] = {"hidden_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"qk_norm": False, "intermediate_size": 96, "rms_eps": 1e-5},
    "qwen2": {"qk_norm": False, "attention_bias": True, "intermediate_size": 96, "tied": False},
    "qwen3": {"intermediate_size": 96},
    "qwen3moe": {"experts": 4, "expert_size": 32, "intermediate_size": 96, "tied": False},
}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def decoder(family: str) -> Decoder:
    torch.manual_seed(2)
    made = Decoder(ModelConfig(vocab_size=tokenizer().vocab_size, **SIZES, **SHAPES[family]))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made


def write_gguf(path: Path, family: str, kind: gguf.GGMLQuantizationType, **more: torch.Tensor) -> None:
    """Write a model as llama.cpp does: matrices quantised, the rows of Llama's q and k interleaved."""
    made = decoder(family)
    config = made.config
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_vocab_size(config.vocab_size)
    if config.experts:
        writer.add_expert_count(config.experts)
        writer.add_expert_used_count(config.experts_per_token)
        writer.add_expert_feed_forward_length(config.expert_size)
    add_tokenizer(writer, path.parent)
    for name, tensor in (gguf_tensors(made) | more).items():
        data = tensor.numpy()
        exact = data.ndim == 1 or name.endswith("ffn_gate_inp.weight")
        used = gguf.GGMLQuantizationType.F32 if exact else kind
        writer.add_tensor(name, gguf.quantize(data, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, directory: Path) -> None:
    tokenizer().save(directory)
    words = json.loads((directory / "tokenizer.json").read_text())["model"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).unlink()
    tokens = [f"<unused{i}>" for i in range(tokenizer().vocab_size)]
    for token, number in words["vocab"].items():
        tokens[number] = token
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in words["merges"]]
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)


def gguf_tensors(made: Decoder) -> dict[str, torch.Tensor]:
    back = {theirs: ours for ours, theirs in (PARTS | STEMS).items()}
    written: dict[str, torch.Tensor] = {}
    experts: dict[str, list[torch.Tensor]] = {}
    for name, tensor in made.state_dict().items():
        stem, kind = name.rsplit(".", 1)
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        if stem in back:
            written[f"{back[stem]}.{kind}"] = tensor
        elif part.startswith("mlp.experts"):
            where = f"blk.{layer}.{back[part.replace(part.split('.')[2], '{}')]}.{kind}"
            experts.setdefault(where, []).append(tensor)
        else:
            written[f"blk.{layer}.{back[part]}.{kind}"] = interleaved(made.config, part, tensor)
    return written | {name: torch.stack(parts) for name, parts in experts.items()}


def interleaved(config: ModelConfig, part: str, tensor: torch.Tensor) -> torch.Tensor:
    heads = {"self_attn.q_proj": config.heads, "self_attn.k_proj": config.kv_heads}.get(part)
    if config.model_type != "llama" or heads is None:
        return tensor
    return tensor.view(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape).contiguous()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("family", SHAPES)
def test_the_weights_are_those_of_transformers(family: str, kind: str, tmp_path: Path) -> None:
    source, target = tmp_path / "model.gguf", tmp_path / "out"
    write_gguf(source, family, gguf.GGMLQuantizationType[kind])
    size = import_weights(source, target)
    read, words, meta = load(target)
    theirs = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    ids = torch.arange(60).view(2, 30)
    with torch.no_grad():
        assert (theirs(ids).logits - read(ids)[0]).abs().max() < 1e-5
    if family in ("llama", "qwen2"):  # of the others transformers 5.23 does not read every size of the file
        same = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=source.name, dtype=torch.float32)
        expected = same.state_dict()
        for name, tensor in read.state_dict().items():
            assert torch.equal(tensor, expected[name])
    if kind == "F32":
        for name, tensor in decoder(family).state_dict().items():
            assert torch.equal(tensor, read.state_dict()[name])
    assert size == TensorFiles.open(target).size == sum(t.nbytes for t in read.state_dict().values())
    assert meta.version == 0 and meta.digest and (target / "chat_template.jinja").read_text() == TEMPLATE
    assert words.encode("calc.py") == tokenizer().encode("calc.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf", "out"]


@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_a_directory_is_imported_in_another_dtype_or_as_it_is(dtype: str | None, tmp_path: Path) -> None:
    made = decoder("llama")
    save(tmp_path / "in", made, tokenizer(), version=4)
    import_weights(tmp_path / "in", tmp_path / "out", dtype)
    kept = getattr(torch, dtype or "float32")
    assert {entry.dtype for entry in TensorFiles.open(tmp_path / "out").entries.values()} == {kept}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == (dtype or "float32")
    for name, tensor in load(tmp_path / "out")[0].state_dict().items():
        assert torch.equal(tensor, made.state_dict()[name].to(kept).float())
    assert load_meta(tmp_path / "out").version == 0


def refused(source: Path, target: Path, message: str) -> None:
    before = sorted(target.parent.rglob("*"))
    with pytest.raises(CheckpointError, match=message):
        import_weights(source, target)
    assert sorted(target.parent.rglob("*")) == before


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_imported_leaves_nothing_behind(tmp_path: Path) -> None:
    good, cut, target = tmp_path / "good.gguf", tmp_path / "cut.gguf", tmp_path / "out"
    write_gguf(good, "llama", gguf.GGMLQuantizationType.F32)
    cut.write_bytes(good.read_bytes()[:-100_000])
    refused(cut, target, "no complete GGUF file")
    refused(tmp_path / "missing.gguf", target, "neither a GGUF file nor a directory")
    other = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    other.write_header_to_file()
    other.write_kv_data_to_file()
    other.write_tensors_to_file()
    other.close()
    refused(tmp_path / "other.gguf", target, "'mamba' is not imported")
    stretched = tmp_path / "stretched.gguf"
    write_gguf(stretched, "llama", gguf.GGMLQuantizationType.F32, **{"rope_freqs.weight": torch.ones(8)})
    refused(stretched, target, r"rope_freqs\.weight has no place")
    spoilt = torch.full((64,), torch.nan)
    write_gguf(
        tmp_path / "nan.gguf", "llama", gguf.GGMLQuantizationType.F32, **{"output_norm.weight": spoilt}
    )
    refused(tmp_path / "nan.gguf", target, r"output_norm\.weight holds NaN")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    refused(good, tmp_path / "there", "exists already")


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "in", decoder("llama"), tokenizer(), version=0)
    usage = namedtuple("usage", "total used free")(1, 1, weights_import.SPARE_BYTES + 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused(tmp_path / "in", tmp_path / "out", "make room")


def test_a_scaled_rope_survives_a_directory_import(tmp_path: Path) -> None:
    scaling = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=64)
    config = ModelConfig(vocab_size=tokenizer().vocab_size, **SIZES, qk_norm=False, rope_scaling=scaling)
    save(tmp_path / "in", Decoder(config), tokenizer(), version=0)
    import_weights(tmp_path / "in", tmp_path / "out")
    assert load(tmp_path / "out")[0].config == config


def test_a_directory_with_a_nan_is_not_imported(tmp_path: Path) -> None:
    save(tmp_path / "in", decoder("qwen3"), tokenizer(), version=0)
    tensors = dict(TensorFiles.open(tmp_path / "in"))
    tensors["model.norm.weight"][3] = torch.nan
    write_tensors(tmp_path / "in", tensors.items())
    refused(tmp_path / "in", tmp_path / "out", r"model\.norm\.weight holds NaN")
