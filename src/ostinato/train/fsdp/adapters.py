"""Low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685) by peft: W + (alpha / r) B A.

Only A and B are trained.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

BASE, LORA, HIGH = ".base_layer.", ".lora_", ".lora_B."
ADAPTER = "default"


def adapt(model: nn.Module, rank: int) -> None:
    """Add an adapter of `rank` to every linear layer but the output matrix; all else is frozen.

    Experts that are one tensor are no linear layers, so they are frozen too. Every process draws the same A,
    so that ranks share one matrix and a restart before the first state goes on as it would have.
    """
    for parameter in model.parameters():
        parameter.requires_grad = False
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # peft brings a rank for fused experts, which nothing here targets
        warnings.filterwarnings("ignore", "The following (rank|alpha)_pattern keys", RuntimeWarning)
        inject_adapter_in_model(config, model, adapter_name=ADAPTER)


@torch.no_grad()
def begin_anew(model: nn.Module) -> None:
    """Let the adapters add nothing again: B becomes 0."""
    for name, parameter in model.named_parameters():
        if HIGH in name:
            parameter.zero_()


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """Let the model compute without what the adapters add, inside the block.

    Their scaling is set to 0. Disabling them through peft would also change which parameters have gradients,
    which FSDP has read by then.
    """
    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    scalings: list[dict[str, float]] = [layer.scaling for layer in layers]
    kept = [dict(scaling) for scaling in scalings]
    for scaling in scalings:
        scaling[ADAPTER] = 0.0
    try:
        yield
    finally:
        for scaling, before in zip(scalings, kept, strict=True):
            scaling.update(before)


def base_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under the names of the checkpoint, without what the adapters add."""
    for name, parameter in model.named_parameters():
        if LORA not in name:
            yield name.replace(BASE, "."), parameter


def merged(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under the names of the checkpoint, the adapters added to what they adapt."""
    for name, parameter in model.named_parameters():
        if LORA in name:
            continue
        if BASE not in name or not name.endswith(".weight"):
            yield name.replace(BASE, "."), parameter
            continue
        owner: Any = model.get_submodule(name.split(BASE)[0])
        low, high = owner.lora_A[ADAPTER].weight, owner.lora_B[ADAPTER].weight
        change = owner.scaling[ADAPTER] * (high.detach() @ low.detach())
        if isinstance(parameter, DTensor):
            change = change.redistribute(placements=parameter.placements)
        yield name.replace(BASE, "."), parameter.detach() + change
