"""The training of an MTP layer beside a model: it learns the model's own distribution, not the text.

A row at position i gets the model's state of i and the token i + 1. Its target is what the model says after
that token: the whole softmax, with cross-entropy. The model is detached, so it learns as if there were no
draft. Drafting goes on from the layer's own states, so it is trained on those too, `DEPTH` tokens deep.

Shapes: T packed tokens, N rows of a piece, C hidden, V vocabulary, K depths.
"""
# ruff: noqa: N803, N806

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ostinato.model.checkpoint import load_config
from ostinato.model.decoder import Decoder
from ostinato.model.mtp import Mtp, has_draft, load_draft
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.base import NOT_FINITE, Note, NotFiniteError
from ostinato.train.local import DecoderModel, PackedAttention
from ostinato.train.losses import LOGITS, TextSums, gradient_norm, text_loss
from ostinato.train.optimizer import AdamW, set_rate
from ostinato.train.packing import Pack
from ostinato.train.state import States

DEPTH = 3
"""The tokens that are drafted in training."""
FADING = 0.8
"""The weight of a depth beside the one before: a token counts only if those before it are accepted."""


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

    def figures(self) -> dict[str, float | list[float]]:
        acceptance = (self.shared / self.rows).tolist()
        return {"draft_loss": float(self.nats[0]) / self.rows, "draft_acceptance": acceptance}


class DraftTraining:
    """An MTP layer that is trained beside `decoder`."""

    def __init__(self, decoder: Decoder, mtp: Mtp, weight_decay: float = 0.0) -> None:
        self.decoder, self.mtp = decoder, mtp
        groups = [{"params": list(mtp.parameters()), "scale": 1.0}]
        self.optimizer = AdamW(groups, lr=0.0, betas=(0.9, 0.95), weight_decay=weight_decay, fused=True)
        self.sums = DraftSums()

    def accumulate(self, pack: Pack, states_TC: Tensor, total: int) -> None:
        """Add the gradient of the mean loss of `total` rows, of which those of this pack are some.

        `states_TC` is what goes into the decoder's head.
        """
        with torch.no_grad():
            states_TC = states_TC.detach()
            normed = self.decoder.norm(states_TC)
        outputs = self._outputs(pack, normed)
        places = rows_of(pack)
        size = max(1, LOGITS // (2 * self.decoder.config.vocab_size))
        weights = torch.tensor([FADING**k for k in range(DEPTH)])
        weights = weights / weights.sum()
        loss = torch.zeros(())
        for some in torch.split(places, size):
            rows = [output[some] for output in outputs]
            nats_K, shared_K = checkpoint(self._compare, states_TC[some + 1], *rows, use_reentrant=False)
            loss = loss + (nats_K * weights).sum()
            self.sums.add(nats_K.detach().double(), shared_K.double(), len(some))
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

    def update(self, rate: float, largest_gradient: float) -> None:
        if not math.isfinite(gradient_norm(list(self.mtp.parameters()), largest_gradient)):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(NOT_FINITE)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def figures(self) -> dict[str, float | list[float]]:
        """Return loss and acceptance by depth since the last call."""
        sums, self.sums = self.sums, DraftSums()
        return sums.figures()


def rows_of(pack: Pack) -> Tensor:
    """Return the packed places of which the token after and the one after that are of one document."""
    return torch.cat([torch.arange(start, end - 1) for start, end in pack.spans])


class DraftingModel(DecoderModel):
    """A decoder that learns text, and the draft that learns beside it; `alone` leaves the decoder as it is.

    A draft that lies beside the weights in `start` is trained further, else a fresh one.
    """

    def __init__(
        self,
        decoder: Decoder,
        run_dir: Path,
        start: Path,
        *,
        alone: bool,
        seed: int,
        weight_decay: float,
        piece_tokens: int,
    ) -> None:
        super().__init__(decoder, run_dir, weight_decay=weight_decay, piece_tokens=piece_tokens)
        mtp, self._fresh = Mtp.beside(decoder, seed), not has_draft(start)
        if not self._fresh:
            known = load_draft(start, load_config(start), tokenizer=Tokenizer.load(start).digest)
            mtp.load_state_dict(known.state_dict())
        self.draft = DraftTraining(decoder, mtp, weight_decay)
        self._alone = alone
        self._draft_states = States(run_dir / "draft")

    def accumulate_text(self, packs: Sequence[Pack], z_loss: float) -> TextSums:
        total, sums = sum(len(pack.targets_N) for pack in packs), TextSums()
        rows = sum(len(rows_of(pack)) for pack in packs)
        for pack in packs:
            with torch.set_grad_enabled(not self._alone):
                hidden_TC = self._text_hidden(pack)
                scores = self._text_scores(pack, hidden_TC)
            if not self._alone:
                text_loss(scores, z_loss, total).backward()  # type: ignore[no-untyped-call]
            sums += TextSums.of(scores)
            self.draft.accumulate(pack, hidden_TC, rows)
        return sums

    def update(self, rate: float, largest_gradient: float) -> float:
        norm = 0.0 if self._alone else super().update(rate, largest_gradient)
        self.draft.update(rate, largest_gradient)
        return norm

    def save(self, number: int, note: Note) -> None:
        """Save the draft first: a state of the decoder then always has one of the draft."""
        self._draft_states.save(number, self.draft.mtp, self.draft.optimizer, {})
        super().save(number, note)

    @torch.no_grad()
    def restore(self, number: int) -> Note | None:
        note = super().restore(number)
        mtp = self.draft.mtp
        if self._draft_states.load(number, mtp, self.draft.optimizer) is None and self._fresh:
            mtp.norm.weight.copy_(self.decoder.norm.weight)  # the phase before had no draft
        return note
