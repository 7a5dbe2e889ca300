"""The weights of a transformers model with gradients, optimizer and states, spread over ranks by FSDP2.

Masters and moments are float32. What is published is each rank's rows, in the type that engines serve;
nothing is gathered.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ostinato.model.replay import ReplayCounts, RouterShape
from ostinato.model.tensor_files import write_tensors
from ostinato.sync.shards import Shard, flatten
from ostinato.sync.weights import state_root, to_blobs
from ostinato.train.balance import shared_out
from ostinato.train.base import NOT_FINITE, Note, NotFiniteError, PieceLoss, StateError
from ostinato.train.batch import ScoredRow
from ostinato.train.config import TrainerConfig
from ostinato.train.fsdp.adapters import adapt, base_weights, begin_anew, merged, without_adapters
from ostinato.train.fsdp.experts import fused, separated
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.fsdp.scoring import ScoringModel, load_scoring
from ostinato.train.fsdp.states import ShardedStates
from ostinato.train.local import ROOT
from ostinato.train.losses import TextScores, TextSums, text_loss
from ostinato.train.packing import Pack, packed_replay

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BETAS = (0.9, 0.95)
MEAN, SQUARE, STEP = "exp_avg", "exp_avg_sq", "step"
STEPS = "optimizer_steps"
"""The field of a note that says how many steps the moments have seen."""
REBASED = "rebased"
"""The field of a note that says whether the state holds the weights that adapters are added to."""
NOTHING = np.empty(0, np.uint8)


class ShardedModel:
    """A `Trainable`. `checkpoint` is a directory in Hugging Face layout; `run_dir` keeps the states."""

    def __init__(
        self,
        checkpoint: Path,
        run_dir: Path,
        config: TrainerConfig,
        ranks: Ranks,
        *,
        weight_decay: float = 0.0,
    ) -> None:
        scoring = load_scoring(checkpoint)
        if config.lora_rank:
            adapt(scoring.model, config.lora_rank)
        if config.recompute:
            cast(Any, scoring.model).activation_checkpointing_enable()
        self._checkpoint, self._config, self._ranks = checkpoint, config, ranks
        self._reference: ScoringModel | None = None
        self._rebased = False
        """True where adapters are added to other weights than those of the checkpoint."""
        self._scoring = _sharded(scoring, config, ranks.device)
        self._trained = {name: p for name, p in scoring.named_parameters() if p.requires_grad}
        self._fused = ranks.size == 1
        self.optimizer = torch.optim.AdamW(
            list(self._trained.values()),
            lr=0.0,
            betas=BETAS,
            weight_decay=weight_decay,
            fused=self._fused,
        )
        self._states = ShardedStates(run_dir / "states", ranks)
        self._replayed = ReplayCounts()

    @property
    def router(self) -> RouterShape | None:
        return self._scoring.router

    def replayed(self) -> ReplayCounts:
        counts, self._replayed = self._replayed, ReplayCounts()
        return sum(self._ranks.all(counts), ReplayCounts())

    def accumulate(self, rows: Sequence[ScoredRow], loss: PieceLoss) -> float:
        total = 0.0
        for part in self._share(rows):
            here = self._placed(part)
            replay = packed_replay(here, self.router)
            scores = self._scoring(here, replay)
            # FSDP takes the mean of the ranks' gradients; the loss is a sum over all rows.
            value = loss(part.rows, scores) if part.rows else scores.logprobs_N.sum() * 0.0
            (value * self._ranks.size).backward()
            total += value.item()
            if replay is not None:
                replay.check_used(2 if self._config.recompute else 1)
                self._replayed += replay.counts
        return float(sum(self._ranks.all(total)))

    def accumulate_text(self, packs: Sequence[Pack], z_loss: float) -> TextSums:
        """Add the gradient of the mean loss of all packs' tokens; return its sums, of all ranks."""
        total, sums, ranks = sum(len(pack.targets_N) for pack in packs), TextSums(), self._ranks
        for number in range(ranks.rank, -(-len(packs) // ranks.size) * ranks.size, ranks.size):
            is_own = number < len(packs)  # every rank takes part in every pass
            scores = self._text_scores(packs[number if is_own else 0])
            loss = text_loss(scores, z_loss, total)
            (loss * (ranks.size if is_own else 0)).backward()  # type: ignore[no-untyped-call]
            sums += TextSums.of(scores) if is_own else TextSums()
        return sum(ranks.all(sums), TextSums())

    @torch.no_grad()
    def text_nats(self, packs: Sequence[Pack]) -> list[Tensor]:
        """Return minus the log-probability of each token that the packs predict, on every rank."""
        ranks, own = self._ranks, dict[int, Tensor]()
        for number in range(ranks.rank, -(-len(packs) // ranks.size) * ranks.size, ranks.size):
            own[number] = self._text_scores(packs[min(number, len(packs) - 1)]).nats_N.cpu()
        together = {number: nats for some in ranks.all(own) for number, nats in some.items()}
        return [together[number] for number in range(len(packs))]

    def _text_scores(self, pack: Pack) -> TextScores:
        return cast(TextScores, self._scoring(self._placed(pack), is_text=True))

    def _share(self, rows: Sequence[ScoredRow]) -> list[Pack]:
        """Return this rank's packs, as many as any other's."""
        ranks, attention = self._ranks, self._scoring.attention_cost
        return shared_out(rows, self._config.piece_tokens, ranks.size, attention)[ranks.rank]

    def _placed(self, part: Pack) -> Pack:
        device = self._ranks.device
        return part.to(device, at_once=device.type == "cuda" and self._config.compute == "bfloat16")

    def update(self, rate: float, largest_gradient: float) -> float:
        norm = self._cut_to(largest_gradient)
        if not math.isfinite(norm):
            self.discard()
            raise NotFiniteError(NOT_FINITE)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _cut_to(self, largest: float) -> float:
        """Scale the gradient down to a norm of at most `largest`; return the norm before, of all ranks."""
        norm = torch.nn.utils.clip_grad_norm_(self._trained.values(), largest)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def discard(self) -> bool:
        norm = self._cut_to(math.inf)
        self.optimizer.zero_grad(set_to_none=True)
        self._replayed = ReplayCounts()
        return math.isfinite(norm)

    def gathered(self, values: Tensor) -> Tensor:
        return torch.cat(self._ranks.all(values))

    def logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        return self._scored_by(self._scoring, rows)

    def refer(self, tensors: Mapping[str, Tensor]) -> None:
        if self._config.lora_rank:
            if odd := self._other_base(tensors):
                raise StateError(
                    f"{odd} of the version that k1 compares with is not that of the weights that adapters "
                    "are added to: a trainer of adapters has these as its only reference, so name by "
                    "k1_reference the version that it began with, or none"
                )
            return
        reference = load_scoring(self._checkpoint).requires_grad_(False)
        self._reference = _sharded(reference, self._config, self._ranks.device)
        _fill(self._reference, tensors)

    def _other_base(self, tensors: Mapping[str, Tensor]) -> str:
        """Return a weight, in the type that is served, by which `tensors` differ from what adapters are added
        to; empty for none. All ranks return the same."""
        _check_fit(self._scoring, tensors)
        odd = ""
        for name, tensor in base_weights(self._scoring.model):
            local, start = _local(tensor)
            if fused(name, tensor):
                same = all(
                    torch.equal(matrix.to(tensors[part].dtype).cpu(), tensors[part])
                    for part, matrix in separated(name, local, start)
                )
            else:
                theirs = tensors[name][start : start + local.shape[0]] if local.ndim else tensors[name]
                same = torch.equal(local.to(theirs.dtype).cpu(), theirs)
            if not same:
                odd = name
                break
        return next((each for each in self._ranks.all(odd) if each), "")

    def reference_logprobs(self, rows: Sequence[ScoredRow]) -> list[Tensor]:
        if self._config.lora_rank:
            with without_adapters(self._scoring.model):
                return self._scored_by(self._scoring, rows)
        assert self._reference is not None, "refer comes first"
        return self._scored_by(self._reference, rows)

    @torch.no_grad()
    def _scored_by(self, scoring: ScoringModel, rows: Sequence[ScoredRow]) -> list[Tensor]:
        own: dict[int, Tensor] = {}
        for part in self._share(rows):
            counts = [len(rows[i].places) for i in part.rows]
            here = self._placed(part)
            scores = scoring(here, packed_replay(here, self.router)).logprobs_N.cpu()
            own.update(zip(part.rows, scores.split_with_sizes(counts), strict=True) if counts else ())
        together = {i: scores for some in self._ranks.all(own) for i, scores in some.items()}
        return [together.get(i, torch.empty(0)) for i in range(len(rows))]

    @property
    def context(self) -> int:
        return self._scoring.context

    @property
    def steps(self) -> int:
        state = next(iter(self.optimizer.state.values()), None)
        return 0 if state is None else int(state[STEP])

    def served(self) -> Mapping[str, Tensor | Shard]:
        dtype, weights = DTYPES[self._config.served], dict[str, Tensor | Shard]()
        for name, tensor in merged(self._scoring.model):
            local, start = _local(tensor)
            held = local.to(dtype).cpu()
            if fused(name, tensor):
                weights |= separated(name, held, start)
            elif isinstance(tensor, DTensor):
                if local.numel():
                    weights[name] = Shard(tensor=held, start=start, rows=tensor.shape[0])
            elif self._ranks.leads:
                weights[name] = held
        return weights

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        begin_anew(self._scoring.model)
        if not self._config.lora_rank or self._other_base(tensors):  # as of a version that was put back
            _fill(self._scoring, tensors)
            self._rebased = bool(self._config.lora_rank)
        self.optimizer.state.clear()

    def save(self, number: int, note: Note) -> None:
        self._states.save(
            number, self._state(), note | {ROOT: self._root(), STEPS: self.steps, REBASED: self._rebased}
        )

    def restore(self, number: int) -> Note | None:
        note = self._states.note(number)
        if note is None:
            return None
        if self._rebased and not note.get(REBASED):
            raise StateError(
                f"state {number} holds adapters alone, and the weights of {self._checkpoint} that they are "
                "added to have been replaced: start this process again"
            )
        self._rebased = note.get(REBASED, False)
        self.optimizer.state.clear()
        if note[STEPS]:  # the state is read into moments that are there
            for parameter in self._trained.values():
                self._begin_moments(parameter, note[STEPS])
        self._states.load(number, self._state())
        return note

    def _begin_moments(self, parameter: Tensor, steps: int) -> dict[str, Tensor]:
        self.optimizer.state[parameter] = moments = {
            STEP: torch.tensor(float(steps), device=parameter.device if self._fused else "cpu"),
            MEAN: torch.zeros_like(parameter.detach()),
            SQUARE: torch.zeros_like(parameter.detach()),
        }
        return moments

    def inherit(self, run_dir: Path) -> int | None:
        states = ShardedStates(run_dir / "states", self._ranks)
        newest = max(states.saved(), default=None)
        if newest is None:
            return None
        note = states.note(newest)
        assert note is not None
        squares = {
            f"{SQUARE}.{name}": self._begin_moments(parameter, note[STEPS])[SQUARE]
            for name, parameter in self._trained.items()
        }
        states.load(newest, squares)
        return newest

    def saved(self, before: int | None = None) -> list[int]:
        return self._states.saved(before)

    @torch.no_grad()
    def write(self, directory: Path) -> None:
        dtype = DTYPES[self._config.served]
        whole = (
            part
            for name, tensor in merged(self._scoring.model)
            for part in separated(
                name, (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).to(dtype).cpu()
            )
        )
        if self._ranks.leads:
            directory.mkdir(parents=True, exist_ok=True)
            write_tensors(directory, whole)
        else:
            for _ in whole:
                pass

    def _state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {f"weight.{name}": parameter for name, parameter in self._trained.items()}
        if self._rebased:
            state |= {f"base.{name}": tensor.detach() for name, tensor in base_weights(self._scoring.model)}
        for name, parameter in self._trained.items():
            for moment in (MEAN, SQUARE):
                if moments := self.optimizer.state.get(parameter):
                    state[f"{moment}.{name}"] = moments[moment]
        return state

    def _root(self) -> str:
        blobs = to_blobs(flatten(self.served()), copy=False)
        own = {name: replace(blob, data=NOTHING) for name, blob in blobs.items()}
        return state_root({name: blob for some in self._ranks.all(own) for name, blob in some.items()})


def _sharded(scoring: ScoringModel, config: TrainerConfig, device: torch.device) -> ScoringModel:
    """Spread the weights of each layer over all ranks; a process alone keeps them as they are.

    Layer by layer they move to the device, so that it never holds the whole model.
    """
    if not dist.is_initialized():
        return scoring.to(device)
    compute = DTYPES[config.compute]
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    mixed = MixedPrecisionPolicy(
        param_dtype=None if compute is torch.float32 else compute, reduce_dtype=torch.float32
    )
    layers = set(cast(Any, scoring.model)._no_split_modules or ())
    for module in list(scoring.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, mesh=mesh, mp_policy=mixed)
    fully_shard(scoring, mesh=mesh, mp_policy=mixed)
    return scoring


def _check_fit(scoring: ScoringModel, tensors: Mapping[str, Tensor]) -> None:
    """Raise StateError for published weights with other names or shapes than the model's."""
    shapes = {
        part: whole.shape
        for name, tensor in base_weights(scoring.model)
        for part, whole in separated(name, torch.empty(tensor.shape, device="meta"))
    }
    if shapes.keys() != tensors.keys():
        odd = sorted(shapes.keys() ^ tensors.keys())[:3]
        raise StateError(f"the published weights do not fit the model: {odd} are in one of them only")
    if misfit := next((name for name, shape in shapes.items() if tensors[name].shape != shape), None):
        raise StateError(f"{misfit} is published with shape {list(tensors[misfit].shape)}")


@torch.no_grad()
def _fill(scoring: ScoringModel, tensors: Mapping[str, Tensor]) -> None:
    """Copy published weights into this process's rows. Raises StateError for a misfit."""
    _check_fit(scoring, tensors)
    for name, tensor in base_weights(scoring.model):
        local, start = _local(tensor)
        if fused(name, tensor):
            for part, matrix in separated(name, local, start):
                matrix.copy_(tensors[part])
        else:
            local.copy_(tensors[name][start : start + local.shape[0]] if local.ndim else tensors[name])


def _local(tensor: Tensor) -> tuple[Tensor, int]:
    """Return the rows that this process holds, and the number of the first."""
    tensor = tensor.detach()
    if not isinstance(tensor, DTensor):
        return tensor, 0
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tensor.to_local(), int(offset[0])
