"""A transformers model that scores packed rows: attention stays inside each row, logits come in pieces.

Shapes: T packed tokens, N scored tokens, C hidden size, H heads.
"""
# ruff: noqa: N803, N806

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.masking_utils import AttentionMaskInterface

from ostinato.model.checkpoint import BUFFERS, HEAD
from ostinato.model.replay import Replay, RouterShape
from ostinato.model.tensor_files import CheckpointError, TensorFiles, finite
from ostinato.train.batch import ScoredRow, Scores, scores_of
from ostinato.train.fsdp.experts import replayable, separated
from ostinato.train.losses import TextScores, text_scores_of
from ostinato.train.packing import Pack, attend, pack

ATTENTION = "ostinato_packed"
HEAD_TOKENS = 256
"""Tokens whose logits are in memory at once; the backward pass computes them again."""
PROBE_TOLERANCE = 1e-3
"""The largest difference in nats between packed and plain scores of the probe, in float32."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    pack: Pack,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return the attention of a pack in the form that transformers expects: [1, T, H, D]."""
    return attend(query, key, value, pack, scale=scaling).transpose(1, 2), None


AttentionInterface.register(ATTENTION, packed_attention)
AttentionMaskInterface.register(ATTENTION, lambda *_, **__: None)


class ScoringModel(nn.Module):
    """A causal language model whose forward pass returns scores of tokens instead of logits."""

    def __init__(self, model: nn.Module, router: RouterShape | None = None) -> None:
        super().__init__()
        self.model = model
        self.router = router
        config = cast(Any, model).config.get_text_config()
        self.context = int(config.max_position_embeddings)
        """The positions that the model was made for."""
        width = config.num_attention_heads * (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        # A token takes 2 operations for each weight, a pair 2 in the score and 2 in the sum for each column.
        weights = sum(parameter.numel() for parameter in model.parameters())
        self.attention_cost = 2 * config.num_hidden_layers * width / weights
        """What a pair of tokens costs in attention, in the cost of a token in all else."""

    def forward(
        self, pack: Pack, replay: Replay | None = None, *, is_text: bool = False
    ) -> Scores | TextScores:
        """Return the scores of the scored tokens, row by row, as text or as samples."""
        causal: Any = self.model
        hidden_TC = causal.get_decoder()(
            input_ids=pack.ids_T[None],
            position_ids=pack.positions_T[None],
            use_cache=False,
            pack=pack,
            replay=replay,
        ).last_hidden_state[0]
        if replay is not None:
            replay.check_used()
        head = causal.get_output_embeddings()
        if is_text:
            return text_scores_of(head, hidden_TC[pack.sources_N], pack.targets_N)
        pieces = range(0, len(pack.targets_N), HEAD_TOKENS)
        parts = [self._piece(head, hidden_TC, pack, slice(at, at + HEAD_TOKENS)) for at in pieces]
        return Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def _piece(self, head: nn.Module, hidden_TC: Tensor, pack: Pack, some: slice) -> Scores:
        temperatures = None if pack.temperatures_N is None else pack.temperatures_N[some]

        def score(hidden: Tensor) -> Scores:
            return scores_of(head(hidden).float(), pack.targets_N[some], temperatures)

        hidden = hidden_TC[pack.sources_N[some]]
        scores: Scores = (
            checkpoint(score, hidden, use_reentrant=False) if hidden.requires_grad else score(hidden)
        )
        return scores


def load_scoring(directory: Path) -> ScoringModel:
    """Load a checkpoint in float32, and show that packed rows are scored as its own forward pass does.

    Raises CheckpointError for an architecture that transformers does not know, or that does more than
    attention inside a row and one output matrix, such as sliding windows or capped logits.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{directory}: transformers cannot load it: {error}") from error
    _check_weights(directory, model)
    if _slides(model.config.get_text_config()):
        raise CheckpointError(
            f"{directory}: config.json has layers that attend to a sliding window, which packed rows do not"
        )
    model.train()
    rows = _probe(int(model.config.get_text_config().vocab_size))
    try:
        plain = plain_logprobs(model, rows)
        router = replayable(cast(Any, model).get_decoder(), torch.tensor(rows[0].ids))
        model.set_attn_implementation(ATTENTION)
        with torch.no_grad():
            packed = ScoringModel(model)(pack(rows)).logprobs_N
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"{directory}: a {model.config.model_type} cannot score packed rows: {error}"
        ) from error
    if not bool((packed - plain).abs().max() <= PROBE_TOLERANCE):
        raise CheckpointError(
            f"{directory}: packed rows of a {model.config.model_type} are not scored as its own forward pass "
            "does: it attends or computes logits in a way that the trainer does not know"
        )
    return ScoringModel(model, router)


@torch.no_grad()
def plain_logprobs(model: nn.Module, rows: Sequence[ScoredRow]) -> Tensor:
    """Return the log-probabilities [N] by the model's own forward pass, one row at a time."""
    scores = []
    for row in rows:
        ids = torch.tensor(row.ids)
        logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0].float()
        places = torch.tensor(row.places)
        scores.append(torch.log_softmax(logits[places - 1], -1).gather(1, ids[places, None])[:, 0])
    return torch.cat(scores)


def _check_weights(directory: Path, model: nn.Module) -> None:
    """Raise CheckpointError for a weight that is not finite, and when transformers renames or fuses tensors,
    since engines could not load their versions."""
    stored = {name for name in TensorFiles.open(directory).entries if not name.endswith(BUFFERS)}
    own = {name for fused, tensor in model.named_parameters() for name, _ in separated(fused, tensor)}
    odd = sorted((stored - {HEAD}) ^ (own - {HEAD}))
    if odd:
        raise CheckpointError(
            f"{directory}: {odd[0]} is a tensor of the checkpoint or of the model that transformers builds "
            "from it, not of both: versions of it could not be published"
        )
    for name, parameter in model.named_parameters():
        if not finite(parameter.detach()):
            raise CheckpointError(f"{directory}: {name} holds values that are not finite: copy it again")


def _slides(config: Any) -> bool:
    """Return True for layers that do not attend to everything before a token."""
    if kinds := getattr(config, "layer_types", None):
        return any(kind != "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)


def _probe(vocabulary: int) -> list[ScoredRow]:
    """Return rows with a common prefix, and with ends of different length."""
    ids = [(7 * i * i + 3) % vocabulary for i in range(80)]
    tails = ids[24:40], ids[40:80]
    return [
        ScoredRow(ids=tuple(ids[:24] + tail), counted=(False,) * 24 + (True,) * len(tail)) for tail in tails
    ]
