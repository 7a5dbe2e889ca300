"""What runs inside vLLM's workers: a patch is laid over a shadow copy, verified, and then loaded.

vLLM mixes `Deltas` into its worker class (`--worker-extension-cls`) and calls it by `collective_rpc`, whose
arguments and results are text. Nothing here raises: an error is an answer, so that the server lives on.

Two things of vLLM 0.32 on a CPU that this works around, both silent and both found by the contract tests:
`reload_weights` leaves an output matrix that is tied to the embedding as it was, so a checkpoint is served
untied (`vllm_export.py`); and it loads experts unpacked into a kernel that expects its own layout, unless the
kernel is made anew.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ostinato.engine.vllm.patch import applied, digest


def _told(method: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """Errors as answers."""

    @wraps(method)
    def answering(*args: str) -> dict[str, str]:
        try:
            return method(*args)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    return answering


class Deltas:
    """A part of vLLM's worker; `model_runner` and `model_config` are the worker's own."""

    model_runner: Any
    model_config: Any
    _deltas_served: dict[str, Tensor] | None = None
    _deltas_staged: dict[str, Tensor] | None = None

    @_told
    def deltas_stage(self, path: str, expected: str) -> dict[str, str]:
        """Lay the patch at `path` over what is served; `expected` is the digest of what must come out."""
        if self._deltas_served is None:
            self._deltas_served = load_file(Path(self.model_config.model) / "model.safetensors")
        staged = applied(self._deltas_served, load_file(path))
        found = digest(staged)
        if found != expected:
            return {"error": f"the patched weights have digest {found}, expected {expected}"}
        if not all(torch.isfinite(tensor).all() for tensor in staged.values()):
            return {"error": "the patched weights hold values that are not finite"}
        self._deltas_staged = staged
        return {"digest": found}

    @_told
    def deltas_commit(self, expected: str) -> dict[str, str]:
        """Load what was staged into the model. Generation must be paused."""
        staged = self._deltas_staged
        if staged is None:
            return {"error": f"nothing is staged, expected {expected}"}
        _forget_packed_experts(self.model_runner.get_model())
        self.model_runner.reload_weights(weights_iterator=iter(staged.items()))
        self._deltas_served, self._deltas_staged = staged, None
        return {"digest": expected}


def _forget_packed_experts(model: torch.nn.Module) -> None:
    """On a CPU the kernel of the experts packs them once, when it is made: have it made again."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None and next(module.parameters()).device.type == "cpu":
            method.moe_kernel = None  # type: ignore[union-attr]
