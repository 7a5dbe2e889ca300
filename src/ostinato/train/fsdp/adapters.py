"""Low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685) by peft: W + (alpha / r) B A.

Only A and B are trained.
"""

import warnings
from collections.abc import Iterator
from typing import Any

from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

BASE, LORA = ".base_layer.", ".lora_"
ADAPTER = "default"


def adapt(model: nn.Module, rank: int) -> None:
    """Add an adapter of `rank` to every linear layer but the output matrix; all else is frozen.

    Experts that are one tensor are no linear layers, so they are frozen too.
    """
    for parameter in model.parameters():
        parameter.requires_grad = False
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        # peft brings a rank for fused experts, which nothing here targets
        warnings.filterwarnings("ignore", "The following (rank|alpha)_pattern keys", RuntimeWarning)
        inject_adapter_in_model(config, model, adapter_name=ADAPTER)


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
