"""A trained version as an adapter: the low-rank difference between two sets of weights, in peft's files.

::

    DIR/adapter_config.json        the rank, and the names of the layers
    DIR/adapter_model.safetensors  A and B of each layer that was trained: W + B A

The trainer publishes whole weights, adapters added, and B A is found again from them: the difference of a
matrix has the adapter's rank, up to the rounding of the published weights. Weights that no adapter gives, as
those of a trainer of all weights, are refused.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ostinato.engine.base import EngineError
from ostinato.model.checkpoint import HEAD
from ostinato.model.tensor_files import WEIGHTS, TensorFiles, write_tensors

EMBEDDING = "model.embed_tokens.weight"
RANKS = (8, 16, 32, 64, 128, 256)
"""The ranks that vLLM has room for (`--max-lora-rank`), of which the smallest that fits is taken."""
ROUNDING, CLOSE = 8 * torch.finfo(torch.float32).eps, 1e-5
"""The difference that may be left: of the largest weight, and of the largest change."""


class NoAdapterError(EngineError):
    """No adapter gives these weights; the message says what to do."""


def write_adapter(base: TensorFiles, tensors: Mapping[str, Tensor], folder: Path, name: str) -> Path | None:
    """Write what `tensors` add to `base` below `folder`; return its directory, None when they add nothing.

    The directory's name tells the weights, so that it is never written twice with other ones. Raises
    NoAdapterError, CheckpointError and OSError.
    """
    parts, said = dict[str, tuple[Tensor, Tensor]](), hashlib.sha256()
    for key in sorted(tensors):
        new = tensors[key].float()
        change = new - base.tensor(EMBEDDING if key == HEAD and HEAD not in base.entries else key).float()
        if not change.any():
            continue
        if new.ndim != 2 or key in (EMBEDDING, HEAD):
            raise NoAdapterError(f"{key} was trained, and an adapter changes linear layers alone: {ADVICE}")
        said.update(key.encode() + new[0].numpy().tobytes())
        parts[key] = factors(key, change, ROUNDING * float(new.abs().max()))
    if not parts:
        return None
    target = folder / f"{name}-{said.hexdigest()[:8]}"
    if not target.exists():
        _write(parts, target)
    return target


def factors(key: str, change: Tensor, rounding: float) -> tuple[Tensor, Tensor]:
    """Return A [r, in] and B [out, r] of the smallest rank with B A = `change`, up to `rounding`."""
    left = rounding + CLOSE * float(change.abs().max())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for rank in RANKS:
            u, s, v = torch.svd_lowrank(change, q=min(rank, *change.shape), niter=4)
            if float((change - (u * s) @ v.T).abs().max()) <= left:
                return v.T.contiguous(), u * s
            if rank >= min(change.shape):
                break
    raise NoAdapterError(f"the change of {key} is of no rank up to {RANKS[-1]}: {ADVICE}")


ADVICE = (
    "train adapters ([trainer] kind = fsdp, lora_rank, served = float32), or release whole weights "
    "([engine] release = weights or hook)"
)


def _write(parts: Mapping[str, tuple[Tensor, Tensor]], target: Path) -> None:
    """Write the files; a directory that is there is whole, whichever engine server of ours wrote it."""
    rank = max(low.shape[0] for low, _ in parts.values())
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    draft.chmod(0o755)  # the engine may run as another user
    tensors = dict[str, Tensor]()
    for key, (low, high) in parts.items():
        stem, room = f"base_model.model.{key.removesuffix('.weight')}", rank - low.shape[0]
        tensors[f"{stem}.lora_A.weight"] = torch.nn.functional.pad(low, (0, 0, 0, room))
        tensors[f"{stem}.lora_B.weight"] = torch.nn.functional.pad(high, (0, room))
    write_tensors(draft, tensors.items())
    (draft / WEIGHTS).rename(draft / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": rank,
        "lora_alpha": rank,  # B A is added as it is
        "target_modules": sorted({key.removesuffix(".weight").rpartition(".")[2] for key in parts}),
        "bias": "none",
        "inference_mode": True,
    }
    (draft / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    try:
        draft.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(draft)  # another one was faster
