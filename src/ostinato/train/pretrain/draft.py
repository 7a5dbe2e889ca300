"""The training of an MTP layer beside a model: it learns the model's own distribution, not the text.

A row at position i gets the model's state of i and the token i + 1. Its target is what the model says after
that token: the whole softmax, with cross-entropy. The model is detached, so it learns as if there were no
draft. Drafting goes on from the layer's own states, so it is trained on those too, `DEPTH` tokens deep.

Beside a model that is fine-tuned or practises, it learns from the same sessions, at the places of their
sampled tokens.

Shapes: T packed tokens, N rows of a piece, C hidden, V vocabulary, K depths.
"""
# ruff: noqa: N803, N806

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ostinato.data.corpus import TextRow
from ostinato.model.checkpoint import CheckpointMeta, load_config
from ostinato.model.decoder import Decoder, WeightsError
from ostinato.model.mtp import Mtp, has_draft, load_draft, save_draft
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.base import NOT_FINITE, Note, NotFiniteError, PieceLoss, StateError
from ostinato.train.batch import ScoredRow, by_length
from ostinato.train.config import TrainerConfig
from ostinato.train.journal import Journal
from ostinato.train.local import DecoderModel, PackedAttention
from ostinato.train.losses import LOGITS, TextSums, gradient_norm, text_loss
from ostinato.train.optimizer import AdamW, set_rate
from ostinato.train.packing import Pack
from ostinato.train.pretrain.rows import text_pack
from ostinato.train.state import States

DEPTH = 3
"""The tokens that are drafted in training."""
DRAFTS = "draft"
"""The folder of its states below that of the run."""
FALL, NEWEST = 0.02, 0.3
"""The fall of acceptance that calls for a refreshment, and the weight of the newest one in its mean."""
MEASURED = 8
"""The rows for each one that a draft which does not learn is measured on: that takes a forward pass."""
FADING = 0.8
"""The weight of a depth beside the one before: a token counts only if those before it are accepted."""


class DraftFigures(TypedDict):
    """The loss of the first drafted token, and the acceptance by depth."""

    draft_loss: float
    draft_acceptance: list[float]


class DraftSums:
    """The sums over the rows of a batch, by depth."""

    def __init__(self) -> None:
        self.rows = 0
        self.nats = torch.zeros(DEPTH, dtype=torch.float64)
        self.shared = torch.zeros(DEPTH, dtype=torch.float64)
        """The mass that model and draft share, which is the chance of acceptance by rejection sampling."""

    def add(self, nats_K: Tensor, shared_K: Tensor, rows: int) -> None:
        self.rows += rows
        self.nats += nats_K
        self.shared += shared_K

    def figures(self) -> DraftFigures:
        acceptance = (self.shared / self.rows).tolist()
        return {"draft_loss": float(self.nats[0]) / self.rows, "draft_acceptance": acceptance}


class DraftTraining:
    """An MTP layer that is trained beside `decoder`."""

    def __init__(self, decoder: Decoder, mtp: Mtp, weight_decay: float = 0.0) -> None:
        self.decoder, self.mtp = decoder, mtp
        groups = [{"params": list(mtp.parameters()), "scale": 1.0}]
        self.optimizer = AdamW(groups, lr=0.0, betas=(0.9, 0.95), weight_decay=weight_decay, fused=True)
        self.sums = DraftSums()

    def accumulate(self, pack: Pack, states_TC: Tensor, places_N: Tensor, total: int) -> None:
        """Add the gradient of the mean loss of `total` rows, of which those of this pack are at `places_N`.

        `states_TC` is what goes into the decoder's head. Without gradients the sums are added to alone.
        """
        with torch.no_grad():
            states_TC = states_TC.detach()
            normed = self.decoder.norm(states_TC)
        outputs = self._outputs(pack, normed)
        size = max(1, LOGITS // (2 * self.decoder.config.vocab_size))
        weights = torch.tensor([FADING**k for k in range(DEPTH)])
        weights = weights / weights.sum()
        loss = torch.zeros(())
        for some in torch.split(places_N, size):
            rows = [output[some] for output in outputs]
            nats_K, shared_K = checkpoint(self._compare, states_TC[some + 1], *rows, use_reentrant=False)
            loss = loss + (nats_K * weights).sum()
            self.sums.add(nats_K.detach().double(), shared_K.double(), len(some))
        if torch.is_grad_enabled():
            (loss / total).backward()  # type: ignore[no-untyped-call]

    def _outputs(self, pack: Pack, normed_TC: Tensor) -> list[Tensor]:
        """Return the states of each depth, [T, C]; that of a depth goes on from the one before."""
        next_T, starts = pack.ids_T.roll(-1), [start for start, _ in pack.spans]
        outputs, states = list[Tensor](), normed_TC
        for _ in range(DEPTH):
            cache = PackedAttention(pack)
            out = self.mtp(self.decoder, states[None], next_T[None], pack.positions_T[None], cache)[0]
            outputs.append(out)
            states = out.roll(1, 0)
            states[starts] = normed_TC[starts]  # no row comes before
        return outputs

    def _compare(self, states_NC: Tensor, *rows_NC: Tensor) -> tuple[Tensor, Tensor]:
        """Return, by depth, the sums of cross-entropy and of the mass that both distributions share."""
        with torch.no_grad():
            target_NV = torch.softmax(self.decoder.head(states_NC).float(), -1)
        nats, shared = list[Tensor](), list[Tensor]()
        for rows in rows_NC:
            said_NV = torch.log_softmax(self.mtp.head(self.decoder, rows).float(), -1)
            nats.append(-(target_NV * said_NV).sum())
            shared.append(torch.minimum(target_NV, said_NV.detach().exp()).sum())
        return torch.stack(nats), torch.stack(shared)

    def clip(self, largest_gradient: float) -> None:
        """Cut the gradient to a norm; raises NotFiniteError, and forgets it, when it is not finite."""
        if not math.isfinite(gradient_norm(list(self.mtp.parameters()), largest_gradient)):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(NOT_FINITE)

    def update(self, rate: float) -> None:
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """Forget gradient and sums."""
        self.optimizer.zero_grad(set_to_none=True)
        self.sums = DraftSums()

    def figures(self) -> DraftFigures:
        """Return loss and acceptance by depth since the last call."""
        sums, self.sums = self.sums, DraftSums()
        return sums.figures()


def rows_of(pack: Pack) -> Tensor:
    """Return the packed places of which the token after and the one after that are of one document."""
    return torch.cat([torch.arange(start, end - 1) for start, end in pack.spans])


class DraftingModel(DecoderModel):
    """A decoder that learns, and the draft beside it, which learns as `how` says.

    | how | the decoder | the draft |
    |---|---|---|
    | `alone` | stays | learns |
    | `joint` | learns | learns in every step |
    | `refreshed` | learns | learns in the steps after its acceptance has fallen by FALL |
    | `frozen` | learns | stays |

    A draft that lies beside the weights in `start` goes on, else a fresh one.
    """

    def __init__(
        self,
        decoder: Decoder,
        run_dir: Path,
        start: Path,
        *,
        how: str,
        seed: int = 0,
        weight_decay: float = 0.0,
        piece_tokens: int = TrainerConfig().piece_tokens,
    ) -> None:
        super().__init__(decoder, run_dir, weight_decay=weight_decay, piece_tokens=piece_tokens)
        mtp, self._fresh = Mtp.beside(decoder, seed), not has_draft(start)
        if not self._fresh:
            known = load_draft(start, load_config(start), tokenizer=Tokenizer.load(start).digest)
            mtp.load_state_dict(known.state_dict())
        self.draft = DraftTraining(decoder, mtp, weight_decay)
        self._alone, self._refreshed = how == "alone", how == "refreshed"
        self._learns = how in ("alone", "joint")
        self._usual = self._best = 0.0
        """The acceptance of the first drafted token: a moving mean, and the highest that it was."""
        self._draft_states = States(run_dir / DRAFTS)
        self._journal = Journal(run_dir / "draft.jsonl")
        self._followed = False

    def accumulate_text(self, packs: Sequence[Pack], z_loss: float) -> TextSums:
        total, sums = sum(len(pack.targets_N) for pack in packs), TextSums()
        places = [rows_of(pack) for pack in packs]
        rows = sum(map(len, places))
        for pack, places_N in zip(packs, places, strict=True):
            with torch.set_grad_enabled(not self._alone):
                hidden_TC = self._text_hidden(pack)
                scores = self._text_scores(pack, hidden_TC)
            if not self._alone:
                text_loss(scores, z_loss, total).backward()  # type: ignore[no-untyped-call]
            sums += TextSums.of(scores)
            self.draft.accumulate(pack, hidden_TC, places_N, rows)
        return sums

    def accumulate(self, rows: Sequence[ScoredRow], loss: PieceLoss) -> float:
        value = super().accumulate(rows, loss)
        self._follow(rows if self._learns else rows[::MEASURED])
        return value

    def _follow(self, rows: Sequence[ScoredRow]) -> None:
        """Let the draft learn from sessions, or only measure it on them."""
        pieces = [
            [rows[i] for i in piece] for piece in by_length([len(r.ids) for r in rows], self._piece_tokens)
        ]
        places = [sampled_of(piece) for piece in pieces]
        if not (total := sum(map(len, places))):
            return
        self._followed = True
        for piece, places_N in zip(pieces, places, strict=True):
            texts = [TextRow(ids=np.array(row.ids, np.int64), starts=(0,)) for row in piece]
            pack = text_pack(texts, confined=True)
            with torch.no_grad():
                hidden_TC = self._text_hidden(pack)
            with torch.set_grad_enabled(self._learns):
                self.draft.accumulate(pack, hidden_TC, places_N, total)

    def _judge(self, number: int) -> None:
        """Note what was measured since the last state, and decide whether the draft learns from now on."""
        figures = self.draft.figures()
        acceptance = figures["draft_acceptance"][0]
        self._usual = acceptance if not self._best else self._usual + NEWEST * (acceptance - self._usual)
        self._best, self._followed = max(self._best, self._usual), False
        self._journal.add({"step": number, **figures, "learnt": self._learns})
        if self._refreshed:
            self._learns = self._usual < self._best - FALL

    def discard(self) -> bool:
        self.draft.forget()
        return super().discard()

    def update(self, rate: float, largest_gradient: float) -> float:
        if self._learns:
            self.draft.clip(largest_gradient)
        norm = 0.0 if self._alone else super().update(rate, largest_gradient)
        if self._learns:
            self.draft.update(rate)
        return norm

    def served(self) -> Mapping[str, Tensor]:
        return {**super().served(), **self.draft.mtp.state_dict()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(tensors)
        start = self.decoder.config.draft_prefix
        try:
            self.draft.mtp.load_state_dict(
                {name: tensors[name] for name in tensors if name.startswith(start)}
            )
        except WeightsError as error:
            raise StateError(
                f"the published weights have no draft of this shape: {error}; set trainer.draft to none, or "
                "begin another run, which publishes one from its first version on"
            ) from error
        self.draft.optimizer.state.clear()
        self._usual, self._best, self._learns = 0.0, 0.0, self._learns and not self._refreshed

    def save(self, number: int, note: Note) -> None:
        """Save the draft first: a state of the decoder then always has one of the draft."""
        if self._followed:
            self._judge(number)
        own = {"usual": self._usual, "best": self._best, "learns": self._learns}
        self._draft_states.save(number, self.draft.mtp, self.draft.optimizer, own)
        super().save(number, note)

    @torch.no_grad()
    def restore(self, number: int) -> Note | None:
        note, mtp = super().restore(number), self.draft.mtp
        own = self._draft_states.load(number, mtp, self.draft.optimizer)
        if own is not None:
            self._usual, self._best = own["usual"], own["best"]
            self._learns = own["learns"] if self._refreshed else self._learns
        elif self._fresh:
            mtp.norm.weight.copy_(self.decoder.norm.weight)  # the phase before had no draft
        return note

    def inherit(self, run_dir: Path) -> int | None:
        States(run_dir / DRAFTS).inherit(self.draft.mtp, self.draft.optimizer)
        return super().inherit(run_dir)

    def leave_draft(self, checkpoint: Path, meta: CheckpointMeta) -> None:
        """Write the draft beside the weights of a finished checkpoint."""
        save_draft(checkpoint, self.draft.mtp, trunk=meta.digest, tokenizer=Tokenizer.load(checkpoint).digest)


def sampled_of(rows: Sequence[ScoredRow]) -> Tensor:
    """Return the packed places from which the draft foretells a counted token of these rows."""
    counted = [np.flatnonzero(row.counted[2:]) for row in rows]
    starts = np.cumsum([0, *(len(row.ids) for row in rows)])
    return torch.from_numpy(np.concatenate([at + start for at, start in zip(counted, starts, strict=False)]))
