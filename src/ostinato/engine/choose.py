"""The choice between the embedded engine and vLLM, by what `benchmarks/engine.py` measured. Torch-free.

The figures behind the limits are in `docs/engine.md`.
"""

from dataclasses import dataclass
from typing import Literal

from ostinato.model.config import ModelConfig

TINY = 10_000_000
"""The weights up to which a step is mostly overhead, so that the embedded engine beats vLLM on a GPU too."""
SMALL = 600_000_000
"""The weights up to which the embedded engine serves on a CPU.

At 135 and 596 million weights it gave as many tokens a CPU second as vLLM, or up to three times as many;
nothing larger was measured."""
COPIES = 2
"""The copies of the weights in float32 that stand in memory during a swap: those in use and the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine to start, and the reason in words.

    >>> EngineChoice(backend="vllm", reason="there is a GPU").backend
    'vllm'
    """

    backend: Literal["embedded", "vllm"]
    reason: str


def choose_engine(
    config: ModelConfig | None, *, gpu: bool, free_bytes: int, vllm: bool = True, unknown: str = ""
) -> EngineChoice:
    """Return the engine for a model of this shape, on a machine with this much free memory.

    `config` is None where our decoder cannot express the model; `unknown` says why. `vllm` is whether it is
    installed: without it the embedded engine serves what it can, however slowly.
    """
    if config is None:
        return EngineChoice(backend="vllm", reason=f"the embedded engine does not know this model: {unknown}")
    count, needed = config.parameters, COPIES * 4 * config.parameters
    size = f"{count / 1e6:,.1f} million weights"
    if needed > free_bytes:
        return EngineChoice(
            backend="vllm",
            reason=f"{size} in float32, twice during a swap, are {needed / 1e9:.1f} GB and "
            f"{free_bytes / 1e9:.1f} GB are free: vLLM can hold them in two bytes each or on a GPU",
        )
    if count <= TINY:
        return EngineChoice(
            backend="embedded", reason=f"{size}: a step is mostly overhead, which is small here"
        )
    if not vllm:
        return EngineChoice(backend="embedded", reason=f"{size}, and vLLM is not installed")
    if gpu:
        return EngineChoice(backend="vllm", reason=f"{size}, and there is a GPU")
    if count <= SMALL:
        return EngineChoice(backend="embedded", reason=f"{size} on a CPU: vLLM is no faster a CPU second")
    return EngineChoice(
        backend="vllm", reason=f"{size} on a CPU: more than the embedded engine was measured at"
    )
