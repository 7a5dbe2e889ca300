"""The part that runs inside vLLM's workers: a version is checked, then loaded by vLLM's own loader.

vLLM mixes `Versions` into its worker class (`--worker-extension-cls`) and calls it by `collective_rpc`, whose
arguments and results are text. Nothing here raises: an error is returned, so that the server lives on.

`reload_weights` takes Hugging Face names and gives each worker its own part, so tensor parallelism needs
nothing here. Two silent defects of vLLM 0.32 on a CPU, both found by the contract tests, are worked around: a
CPU computes with packed copies of the weights, and `reload_weights` neither packs an output matrix that is
tied to the embedding again, nor experts. On a GPU nothing is packed, and the tied matrix shares its memory.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from ostinato.engine.vllm.handover import digest, read


def _returning_errors(method: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """Decorate a method so that it returns errors instead of raising them."""

    @wraps(method)
    def returning(*args: str) -> dict[str, str]:
        try:
            return method(*args)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    return returning


class Versions:
    """The extension of vLLM's worker; `model_runner` and `rank` are the worker's own."""

    model_runner: Any
    rank: int

    @_returning_errors
    def version_check(self, path: str, expected: str) -> dict[str, str]:
        """Read the file of a version, which also brings it into memory; `expected` is its digest.

        One worker does it for all, since they read the same file.
        """
        if self.rank == 0 and (actual := digest(Path(path))) != expected:
            return {"error": f"the weights have digest {actual}, expected {expected}"}
        return {"digest": expected}

    @_returning_errors
    def version_load(self, path: str) -> dict[str, str]:
        """Load the weights into the model. Generation must be paused."""
        model = self.model_runner.get_model()
        _forget_packed_experts(model)
        self.model_runner.reload_weights(weights_iterator=read(Path(path)))
        _pack_tied_heads(model)
        return {"loaded": path}


def _forget_packed_experts(model: torch.nn.Module) -> None:
    """Drop the experts' kernels on a CPU: a kernel packs the experts only when it is created."""
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None and next(module.parameters()).device.type == "cpu":
            method.moe_kernel = None  # type: ignore[union-attr]


def _pack_tied_heads(model: torch.nn.Module) -> None:
    """Pack again, on a CPU, every matrix that shares its memory with another module's."""
    owners: dict[int, list[Any]] = {}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and hasattr(module, "cpu_linear") and weight.numel():
            owners.setdefault(weight.data_ptr(), []).append(module)
    for modules in owners.values():
        if len(modules) > 1:
            for module in modules:
                module.quant_method.process_weights_after_loading(module)
