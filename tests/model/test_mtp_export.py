"""A draft for vLLM is a layer of GLM-4.5: transformers' own one computes the same with its weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.toolbox import encoder
from tests.model.test_mtp import GLM_4_5, drafted
from torch import nn

from ostinato import cli
from ostinato.model.mtp_export import export_draft
from ostinato.model.tensor_files import CheckpointError, TensorFiles

transformers = pytest.importorskip("transformers")
modelling = pytest.importorskip("transformers.models.glm4_moe.modeling_glm4_moe")
FAMILIES = [{}, {"qk_norm": False}, {"qk_norm": False, "attention_bias": True, "tied": False}]


def peer(folder: Path) -> tuple[dict[str, torch.Tensor], nn.Module, nn.Module]:
    """Return the exported weights by their names in the layer, transformers' layer with them, its rotary."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    files = TensorFiles.open(folder)
    start = f"model.layers.{config.num_hidden_layers}."
    found = {name.removeprefix(start): files.tensor(name) for name in files.entries if name.startswith(start)}
    assert len(found) == len(files.entries)
    layer = modelling.Glm4MoeDecoderLayer(config, config.num_hidden_layers)
    experts = {
        f"{part}_proj": torch.stack([found[f"mlp.experts.{e}.{part}_proj.weight"] for e in range(2)])
        for part in ("gate", "up", "down")
    }
    fused = {"gate_up_proj": torch.cat((experts["gate_proj"], experts["up_proj"]), 1)}
    weights = {f"mlp.experts.{name}": value for name, value in fused.items()}
    weights["mlp.experts.down_proj"] = experts["down_proj"]
    own = layer.state_dict().keys() - weights.keys()
    layer.load_state_dict(weights | {name: found[name] for name in own})
    return found, layer, modelling.Glm4MoeRotaryEmbedding(config)


@pytest.mark.parametrize("sizes", FAMILIES, ids=["qwen3", "llama", "qwen2"])
@torch.no_grad()
def test_transformers_glm_layer_computes_the_same(tmp_path: Path, sizes: dict[str, Any]) -> None:
    decoder, mtp = drafted(tmp_path / "model", **sizes)
    export_draft(tmp_path / "model", tmp_path / "draft")
    found, layer, rotary = peer(tmp_path / "draft")
    ids, positions = torch.randint(0, 30, (1, 9)), torch.arange(9)[None]
    states, eps = torch.randn(1, 9, 32), decoder.config.rms_eps
    embedded = found["embed_tokens.weight"][ids].masked_fill((positions == 0)[..., None], 0.0)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return nn.functional.rms_norm(x, (32,), found[f"{name}.weight"], eps)

    x = torch.cat((norm(embedded, "enorm"), norm(states, "hnorm")), -1) @ found["eh_proj.weight"].T
    mask = torch.full((9, 9), -torch.inf).triu(1)[None, None]
    theirs = layer(x, attention_mask=mask, position_embeddings=rotary(x, positions), position_ids=positions)
    ours = mtp(decoder, states, ids, positions)
    assert (theirs - ours).abs().max() < 1e-5
    logits = norm(theirs, "shared_head.norm") @ found["shared_head.head.weight"].T
    assert (logits - mtp.head(decoder, ours)).abs().max() < 1e-5


def test_its_names_are_those_that_vllm_takes(tmp_path: Path) -> None:
    drafted(tmp_path / "model")
    export_draft(tmp_path / "model", tmp_path / "draft")
    mlp = "model.layers.2.mlp."
    theirs = {name.replace(".46.", ".2.") for name in GLM_4_5} | {f"{mlp}gate.e_score_correction_bias"}
    theirs |= {f"{mlp}shared_experts.{part}_proj.weight" for part in ("gate", "up", "down")}
    assert set(TensorFiles.open(tmp_path / "draft").entries) == theirs


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drafted(tmp_path / "experts", experts=4)
    with pytest.raises(CheckpointError, match="weigh 4 experts of an MTP layer otherwise"):
        export_draft(tmp_path / "experts", tmp_path / "draft")
    drafted(tmp_path / "dense", qk_norm=False)
    with pytest.raises(CheckpointError, match="exists already"):
        export_draft(tmp_path / "dense", tmp_path / "dense")
    encoder().save(tmp_path / "bare")
    assert cli.main(["weights", "draft", str(tmp_path / "bare"), str(tmp_path / "draft")]) == 1
    assert "config.json" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "dense", "experts"]
