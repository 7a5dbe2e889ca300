"""An MTP layer in DeepSeek-V3 form: it foretells the token after the next one, for drafts.

::

    state of position i ──── hnorm ─┐
    (after the last norm)           ├─ eh_proj ─► a layer like the decoder's ─► shared_head.norm ─► head
    embedding of i + 1 ───── enorm ─┘                    │
                                        state of position i + 1, for the token after that one

Embedding and head are the decoder's. A draft lies beside its model::

    DIR/draft/config.json        the shape, and the digests of the weights and the tokenizer it drafts for
    DIR/draft/model.safetensors  weights, named as DeepSeek-V3 and GLM-4.5 name those of layer number `layers`

It has a folder of its own, since an engine that knows the family without such a layer refuses its names.
"""
# ruff: noqa: N803

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import (
    Context,
    Decoder,
    KeyValueCache,
    Layer,
    Rotary,
    check_weights,
    initialise_layers,
)
from ostinato.model.norm import RMSNorm
from ostinato.model.tensor_files import CONFIG, CheckpointError, TensorFiles, read_json, write_tensors

FOLDER = "draft"
TRUNK, TOKENIZER = "ostinato_trunk", "ostinato_tokenizer"
"""The fields of its config.json with the digests of what it drafts for."""


class Mtp(nn.Module):
    """The layer beside a decoder of this shape; a fresh one foretells nothing yet.

    Shapes: B rows, T tokens, C hidden, V vocabulary.
    """

    def __init__(self, config: ModelConfig, *, initialise: bool = True) -> None:
        super().__init__()
        C = config.hidden_size  # noqa: N806
        self.config = config
        self.embedding_norm = RMSNorm(C, config.rms_eps)
        self.state_norm = RMSNorm(C, config.rms_eps)
        self.join = nn.Parameter(torch.empty(C, 2 * C))
        self.layer = Layer(config)
        self.norm = RMSNorm(C, config.rms_eps)
        self.rotary = Rotary(config)
        if initialise:
            initialise_layers(self._named())

    @classmethod
    def beside(cls, decoder: Decoder, seed: int) -> "Mtp":
        """Return a fresh layer whose logits have the scale of the decoder's."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = cls(decoder.config)
        with torch.no_grad():
            made.norm.weight.copy_(decoder.norm.weight)
        return made

    def forward(
        self,
        decoder: Decoder,
        states_BTC: Tensor,
        next_BT: Tensor,
        positions_BT: Tensor,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Return the states of the rows after: [B, T, C]. The decoder gets no gradient.

        `states_BTC` are the decoder's after its last norm, or what this returned for the position before;
        `next_BT` is the token after each position. The embedding at position 0 counts as zero, as in the
        engines that serve such layers.
        """
        embedded = F.embedding(next_BT, decoder.embedding.detach())
        embedded = embedded.masked_fill((positions_BT == 0).unsqueeze(-1), 0.0)
        x = F.linear(torch.cat((self.embedding_norm(embedded), self.state_norm(states_BTC)), -1), self.join)
        context = Context(*self.rotary.at(positions_BT, next_BT), cache)
        x = x + self.layer.attention(self.layer.attention_norm(x), context, 0)
        added: Tensor = x + self.layer.mlp(self.layer.mlp_norm(x))[0]
        return added

    def head(self, decoder: Decoder, states: Tensor) -> Tensor:
        """Return the logits of the token after the next one: [..., C] to [..., V]."""
        return F.linear(self.norm(states), decoder.unembedding.detach())

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return views of the weights by name: copy them before the next optimizer step."""
        return {name: tensor.detach() for name, tensor in self._named()}

    @torch.no_grad()
    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:  # type: ignore[override]
        """Copy weights in by name, all or nothing; raises WeightsError."""
        own = self.state_dict()
        check_weights(own, tensors)
        for name, tensor in own.items():
            tensor.copy_(tensors[name])

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        start = prefix(self.config)
        yield f"{start}enorm.weight", self.embedding_norm.weight
        yield f"{start}hnorm.weight", self.state_norm.weight
        yield f"{start}eh_proj.weight", self.join
        yield f"{start}shared_head.norm.weight", self.norm.weight
        yield from ((f"{start}{name}", tensor) for name, tensor in self.layer.tensors())


def prefix(config: ModelConfig) -> str:
    """Return what the names of a draft's tensors begin with, and no name of the model does."""
    return f"model.layers.{config.layers}."


def save_draft(checkpoint: Path, mtp: Mtp, *, trunk: str, tokenizer: str) -> None:
    """Write a draft beside its model, whose weights and tokenizer have these digests."""
    folder = checkpoint / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    fields = mtp.config.to_hf() | {"num_nextn_predict_layers": 1, TRUNK: trunk, TOKENIZER: tokenizer}
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n")
    write_tensors(folder, mtp.state_dict().items())


def has_draft(checkpoint: Path) -> bool:
    return (checkpoint / FOLDER / CONFIG).exists()


def load_draft(checkpoint: Path, config: ModelConfig, *, tokenizer: str) -> Mtp:
    """Read the draft of a checkpoint whose shape and digest of the tokenizer these are.

    Raises CheckpointError for a draft that was made for other weights or another vocabulary.
    """
    folder = checkpoint / FOLDER
    if not has_draft(checkpoint):
        raise CheckpointError(
            f"{checkpoint} has no draft in {FOLDER}/: train one (`ostinato pretrain`), or draft otherwise"
        )
    fields = read_json(folder / CONFIG)
    _refuse_stranger(folder, fields, config, tokenizer)
    trunk = TensorFiles.open(checkpoint).digest()
    if fields.get(TRUNK) != trunk:
        raise CheckpointError(
            f"{folder}: this draft was trained for other weights ({str(fields.get(TRUNK))[:12]}…) than "
            f"those beside it ({trunk[:12]}…): train it on these (`ostinato pretrain`), or delete it"
        )
    files, mtp = TensorFiles.open(folder), Mtp(config, initialise=False)
    own = mtp.state_dict()
    if files.entries.keys() != own.keys():
        missing, surplus = own.keys() - files.entries.keys(), files.entries.keys() - own.keys()
        raise CheckpointError(f"{folder}: missing {sorted(missing)[:3]}, unknown {sorted(surplus)[:3]}")
    mtp.load_state_dict({name: files.tensor(name) for name in own})
    return mtp


def _refuse_stranger(folder: Path, fields: Mapping[str, Any], config: ModelConfig, tokenizer: str) -> None:
    """Raise CheckpointError, which names what differs from the model's shape and vocabulary."""
    expected = config.to_hf() | {TOKENIZER: tokenizer}
    names = [name for name in expected if fields.get(name) != expected[name]]
    if names:
        what = ", ".join(
            f"{name} is {fields.get(name)!r}, the model's {expected[name]!r}" for name in names[:3]
        )
        raise CheckpointError(f"{folder}: this draft is one of another model: {what}")
