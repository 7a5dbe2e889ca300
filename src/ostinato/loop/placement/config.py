"""The table `[placement]` of a run's file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ostinato.engine.config import BACKENDS

KINDS: Mapping[str, str] = {
    "ostinato.engine.server": "engine",
    "ostinato.gateway.server": "gateway",
    "ostinato.search.server": "search",
    "ostinato.loop.stages.sampler": "sampler",
    "ostinato.train.learner": "learner",
    "ostinato.train.republish": "learner",
    "ostinato.train.sft": "learner",
}
"""The name in `[placement.resources]` of the services of each module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The resources of one service of a kind.

    >>> Needs(gpus=1.0).cpus
    1.0
    """

    cpus: float = 1.0
    gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)
    """Resources by the names that the cluster's nodes gave them."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the node must have, such as `region`."""

    def __post_init__(self) -> None:
        if min(self.cpus, self.gpus, *self.custom.values(), 0.0) < 0:
            raise ValueError(f"no resource is below 0: cpus {self.cpus}, gpus {self.gpus}, {self.custom}")

    @property
    def bundle(self) -> dict[str, float]:
        """The resources by Ray's names, without those that are zero."""
        wanted = {"CPU": self.cpus, "GPU": self.gpus, **self.custom}
        return {name: amount for name, amount in wanted.items() if amount > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """The place of the services of a run.

    >>> PlacementConfig(kind="ray", address="10.0.0.1:6379").resources
    {}
    """

    kind: Literal["local", "ray"] = "local"
    """`local` starts children of this process, `ray` actors on the nodes of a cluster."""
    address: str = "auto"
    """The cluster, for `ray`: HOST:PORT, or `auto` for the one that this machine belongs to."""
    resources: Mapping[str, Needs] = field(default_factory=dict)
    """The resources of each service by its kind: engine, gateway, learner, sampler, sandbox, search. For
    `ray`; one that is not named takes one CPU."""

    def __post_init__(self) -> None:
        kinds = sorted(set(KINDS.values()))
        if unknown := self.resources.keys() - set(kinds):
            raise ValueError(f"resources names {min(unknown)!r}: the services are {', '.join(kinds)}")
        if self.kind == "local" and (self.resources or self.address != "auto"):
            raise ValueError("address and resources are of a cluster: set kind to ray, or leave them out")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesConfig:
    """The engines that serve the versions of a run."""

    url: tuple[str, ...] = ()
    """Addresses of servers that serve the model already, before which `ostinato team up` records; () starts
    engines here."""
    backend: str = "auto"
    """`embedded`, `vllm` or an engine of a plug-in; `auto` takes the embedded engine for a shape that it
    knows, else vLLM."""
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
    draft: Literal["auto", "suffix", "none"] = "auto"
    """`suffix` drafts what followed the same tokens before, and verifies it in one step; `auto` does so in
    the embedded engine, where that changes no token."""
    draft_tokens: int = 7
    """The most tokens that are drafted for a sequence in one step."""
    standby: int = 0
    """Engines that stand by in practice: warm, without traffic, each in place of one that dies or hangs."""

    def check(self, *, synchronous: bool) -> None:
        """Raise ValueError for an engine that nobody has, and for engines that cannot stand by."""
        if self.backend not in BACKENDS or self.backend == "remote":
            known = ", ".join(name for name in BACKENDS if name != "remote")
            raise ValueError(f"engine.backend is {self.backend!r}: the engines are {known}")
        if self.standby < 0 or (self.standby and synchronous):
            raise ValueError(
                f"engine.standby is {self.standby}: make it 0 or more, and 0 in synchronous practice, which "
                "waits for its own engine so that it can be repeated"
            )
