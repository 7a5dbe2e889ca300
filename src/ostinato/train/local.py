"""Our own decoder in one process and one thread: the whole model in memory, AdamW, states as files."""
# ruff: noqa: N803, N806

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ostinato.model.decoder import Decoder, WeightsError
from ostinato.model.replay import Replay, ReplayCounts, RouterShape
from ostinato.model.tensor_files import write_tensors
from ostinato.sync.shards import Shard
from ostinato.sync.weights import state_root, to_blobs
from ostinato.train.base import NOT_FINITE, Note, NotFiniteError, PieceLoss, StateError
from ostinato.train.batch import ScoredRow, Scores, by_length, counted_scores, padded_replay, scores_of
from ostinato.train.config import TrainerConfig
from ostinato.train.losses import TextScores, TextSums, gradient_norm, text_loss, text_scores_of
from ostinato.train.optimizer import adamw, set_rate, steps_taken
from ostinato.train.packing import Pack, attend, longest_prefix, packed_replay, packs
from ostinato.train.state import States

WORTH = 64
"""The tokens from which on a common prompt is computed once; below, padded passes are faster."""
ROOT = "state_root"
"""The field of a note that says which weights a state holds."""


class DecoderModel:
    """A `Trainable`. `decoder` is trained in place; `run_dir` keeps the states."""

    def __init__(
        self,
        decoder: Decoder,
        run_dir: Path,
        *,
        weight_decay: float = 0.0,
        piece_tokens: int = TrainerConfig().piece_tokens,
    ) -> None:
        self.decoder = decoder
        self.optimizer = adamw(decoder, rate=0.0, weight_decay=weight_decay)
        self._piece_tokens = piece_tokens
        self._states = States(run_dir / "states")
        self._reference: Decoder | None = None
        self._replayed = ReplayCounts()

    @property
    def router(self) -> RouterShape | None:
        return self.decoder.router

    def replayed(self) -> ReplayCounts:
        counts, self._replayed = self._replayed, ReplayCounts()
        return counts

    def accumulate(self, rows: Sequence[ScoredRow], loss: PieceLoss) -> float:
        total = 0.0
        for piece in self._pieces(rows):
            part = loss(piece.rows, piece.score(self.decoder))
            part.backward()  # type: ignore[no-untyped-call]
            total += part.item()
            if piece.replay is not None:
                self._replayed += piece.replay.counts
        return total

    def accumulate_text(self, packs: Sequence[Pack], z_loss: float) -> TextSums:
        """Add the gradient of the mean loss of all packs' tokens; return its sums."""
        total, sums = sum(len(pack.targets_N) for pack in packs), TextSums()
        for pack in packs:
            scores = self._text_scores(pack, self._text_hidden(pack))
            text_loss(scores, z_loss, total).backward()  # type: ignore[no-untyped-call]
            sums += TextSums.of(scores)
        return sums

    @torch.no_grad()
    def text_nats(self, packs: Sequence[Pack]) -> list[Tensor]:
        """Return minus the log-probability of each token that the packs predict."""
        return [self._text_scores(pack, self._text_hidden(pack)).nats_N for pack in packs]

    def _text_hidden(self, pack: Pack) -> Tensor:
        """Return what goes into the head, [T, C]."""
        hidden_BTC, _ = self.decoder.hidden(
            pack.ids_T[None], positions=pack.positions_T[None], cache=PackedAttention(pack)
        )
        return hidden_BTC[0]

    def _text_scores(self, pack: Pack, hidden_TC: Tensor) -> TextScores:
        return text_scores_of(self.decoder.head, hidden_TC[pack.sources_N], pack.targets_N)

    def update(self, rate: float, largest_gradient: float) -> float:
        norm = gradient_norm(list(self.decoder.parameters()), largest_gradient)
        if not math.isfinite(norm):
            self.discard()
            raise NotFiniteError(NOT_FINITE)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def discard(self) -> bool:
        norm = gradient_norm(list(self.decoder.parameters()), math.inf)
        self.optimizer.zero_grad(set_to_none=True)
        self._replayed = ReplayCounts()
        return math.isfinite(norm)

    def logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        return self._scored_by(self.decoder, rows)

    def refer(self, tensors: Mapping[str, Tensor]) -> None:
        self._reference = _filled(Decoder(self.decoder.config, initialise=False), tensors)

    def reference_logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        assert self._reference is not None, "refer comes first"
        return self._scored_by(self._reference, rows)

    @torch.no_grad()
    def _scored_by(self, decoder: Decoder, rows: Sequence[ScoredRow]) -> list[Tensor]:
        scores: list[Tensor] = [torch.empty(0)] * len(rows)
        for piece in self._pieces(rows):
            counts = [len(rows[i].places) for i in piece.rows]
            parts: Sequence[Tensor] = piece.score(decoder).logprobs_N.split_with_sizes(counts)
            for i, part in zip(piece.rows, parts, strict=True):
                scores[i] = part
        return scores

    def _pieces(self, rows: Sequence[ScoredRow]) -> list["_Padded"] | list["_Packed"]:
        """Return all rows in pieces, packed where some share a long prompt, which is then computed once."""
        if longest_prefix(rows) >= WORTH:
            together = packs(rows, self._piece_tokens)
            return [_Packed(each, packed_replay(each, self.router)) for each in together]
        pieces = [
            (piece, [rows[i] for i in piece])
            for piece in by_length([len(row.ids) for row in rows], self._piece_tokens)
        ]
        return [_Padded(piece, some, padded_replay(some, self.router)) for piece, some in pieces]

    def gathered(self, values: Tensor) -> Tensor:
        return values

    @property
    def context(self) -> int:
        return self.decoder.config.max_positions

    @property
    def steps(self) -> int:
        return steps_taken(self.optimizer)

    def served(self) -> Mapping[str, Tensor | Shard]:
        return self.decoder.state_dict()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        _filled(self.decoder, tensors)
        self.optimizer.state.clear()

    def save(self, number: int, note: Note) -> None:
        self._states.save(number, self.decoder, self.optimizer, note | {ROOT: self._root()})

    def restore(self, number: int) -> Note | None:
        return self._states.load(number, self.decoder, self.optimizer)

    def inherit(self, run_dir: Path) -> int | None:
        return States(run_dir / "states").inherit(self.decoder, self.optimizer)

    def saved(self, before: int | None = None) -> list[int]:
        return self._states.saved(before)

    def write(self, directory: Path) -> None:
        write_tensors(directory, self.decoder.state_dict().items())

    def _root(self) -> str:
        return state_root(to_blobs(self.decoder.state_dict(), copy=False))


def _filled(decoder: Decoder, tensors: Mapping[str, Tensor]) -> Decoder:
    """Return the decoder with published weights. Raises StateError for a misfit."""
    try:
        decoder.load_state_dict(tensors)
    except WeightsError as error:
        raise StateError(f"the published weights do not fit the model: {error}") from error
    return decoder


@dataclass(frozen=True, slots=True)
class _Padded:
    rows: Sequence[int]
    scored: Sequence[ScoredRow]
    replay: Replay | None

    def score(self, decoder: Decoder) -> Scores:
        return counted_scores(decoder, self.scored, self.replay)


@dataclass(frozen=True, slots=True)
class _Packed:
    pack: Pack
    replay: Replay | None

    @property
    def rows(self) -> Sequence[int]:
        return self.pack.rows

    def score(self, decoder: Decoder) -> Scores:
        pack = self.pack
        hidden_BTC, _ = decoder.hidden(
            pack.ids_T[None],
            positions=pack.positions_T[None],
            cache=PackedAttention(pack),
            replay=self.replay,
        )
        logits = decoder.head(hidden_BTC[0, pack.sources_N])
        return scores_of(logits, pack.targets_N, pack.temperatures_N)


@dataclass(frozen=True, slots=True)
class PackedAttention:
    """A `KeyValueCache` that keeps nothing: the tokens of a pack are all there."""

    pack: Pack

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        return attend(q_BHTD, k_BKTD, v_BKTD, self.pack)
