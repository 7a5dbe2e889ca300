"""The part that runs inside vLLM's workers: a patch is applied to a copy, verified, and then loaded.

vLLM mixes `Deltas` into its worker class (`--worker-extension-cls`) and calls it by `collective_rpc`, whose
arguments and results are text. Nothing here raises: an error is returned, so that the server lives on.

This works around two silent defects of vLLM 0.32 on a CPU, both found by the contract tests. `reload_weights`
does not update an output matrix that is tied to the embedding, so `export.py` writes it as a tensor of its
own. And it loads unpacked experts into a kernel that expects its own layout, unless the kernel is
created again.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ostinato.engine.vllm.patch import applied, digest


def _returning_errors(method: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """Decorate a method so that it returns errors instead of raising them."""

    @wraps(method)
    def returning(*args: str) -> dict[str, str]:
        try:
            return method(*args)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    return returning


class Deltas:
    """The extension of vLLM's worker; `model_runner` and `model_config` are the worker's own."""

    model_runner: Any
    model_config: Any
    _deltas_served: dict[str, Tensor] | None = None
    _deltas_staged: dict[str, Tensor] | None = None

    @_returning_errors
    def deltas_stage(self, path: str, expected: str) -> dict[str, str]:
        """Apply the patch at `path` to a copy of the weights; `expected` is the digest of the result."""
        if self._deltas_served is None:
            self._deltas_served = load_file(Path(self.model_config.model) / "model.safetensors")
        staged = applied(self._deltas_served, load_file(path))
        actual = digest(staged)
        if actual != expected:
            return {"error": f"the patched weights have digest {actual}, expected {expected}"}
        if not all(torch.isfinite(tensor).all() for tensor in staged.values()):
            return {"error": "the patched weights hold values that are not finite"}
        self._deltas_staged = staged
        return {"digest": actual}

    @_returning_errors
    def deltas_commit(self, expected: str) -> dict[str, str]:
        """Load the staged weights into the model. Generation must be paused."""
        staged = self._deltas_staged
        if staged is None:
            return {"error": f"nothing is staged, expected {expected}"}
        _forget_packed_experts(self.model_runner.get_model())
        self.model_runner.reload_weights(weights_iterator=iter(staged.items()))
        self._deltas_served, self._deltas_staged = staged, None
        return {"digest": expected}


def _forget_packed_experts(model: torch.nn.Module) -> None:
    """Drop the experts' kernels on a CPU: a kernel packs the experts only when it is created."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None and next(module.parameters()).device.type == "cpu":
            method.moe_kernel = None  # type: ignore[union-attr]
