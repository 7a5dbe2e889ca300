"""The table `[engine]` of a run's file."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesConfig:
    """The engines that serve the versions of a run."""

    backend: Literal["auto", "embedded", "vllm"] = "auto"
    """`auto` takes the embedded engine for a shape that it knows, else vLLM."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type that vLLM computes in; `auto` takes bfloat16 where the hardware has it (`ostinato doctor`)."""
    tensor_parallel: int = 1
    """vLLM's workers that share each layer."""
    arguments: tuple[str, ...] = ()
    """Further arguments for vLLM, such as `--gpu-memory-utilization=0.8`."""
    python: str | None = None
    """The interpreter that has vLLM; none takes the one that runs this."""
    slots: int = 96
    """Sequences that an engine decodes at once."""
    context: int = 768
    """Tokens of prompt and completion together that an engine has room for."""
    standby: int = 0
    """Engines that stand by in practice: warm, without traffic, each in place of one that dies or hangs."""

    def check(self, *, synchronous: bool) -> None:
        """Raise ValueError for engines that cannot stand by."""
        if self.standby < 0 or (self.standby and synchronous):
            raise ValueError(
                f"engine.standby is {self.standby}: make it 0 or more, and 0 in synchronous practice, which "
                "waits for its own engine so that it can be repeated"
            )
