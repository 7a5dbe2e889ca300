"""The table `[placement]` of a run's file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from ostinato.engine.config import BACKENDS, DraftKind, ReleaseWay

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
    draft: DraftKind = "auto"
    """`suffix` drafts what followed the same tokens before, `mtp` that or what the MTP layer foretells, which
    `trainer.draft` teaches, and the next step verifies it; `auto` does so in the embedded engine,
    where that changes no token."""
    draft_tokens: int = 7
    """The most tokens that are drafted for a sequence in one step."""
    url: tuple[str, ...] = ()
    """Addresses of vLLM servers that are there already and serve `model.path`: the run starts none."""
    release: ReleaseWay = "adapter"
    """How trained versions reach them (`docs/engines.md`): `adapter` loads each under a name of its own,
    beside the others; `hook` and `weights` put one version in an engine at a time."""
    on_release: tuple[str, ...] = ()
    """For `hook`: a command, which gets a checkpoint directory, the version and the engine's address."""
    released: Path | None = None
    """The folder of released versions, which the engines read under the same path; none takes the run
    folder."""
    standby: int = 0
    """Engines that stand by in practice: warm, without traffic, each in place of one that dies or hangs."""

    @property
    def in_place(self) -> bool:
        """Whether an engine that is there serves one version at a time."""
        return bool(self.url) and self.release != "adapter"

    def check(self, *, synchronous: bool) -> None:
        """Raise ValueError for an engine that nobody has, and for engines that cannot stand by."""
        if self.backend not in BACKENDS or self.backend == "remote":
            known = ", ".join(name for name in BACKENDS if name != "remote")
            raise ValueError(f"engine.backend is {self.backend!r}: the engines are {known}")
        self._check_foreign()
        if self.standby < 0 or (self.standby and synchronous):
            raise ValueError(
                f"engine.standby is {self.standby}: make it 0 or more, and 0 in synchronous practice, which "
                "waits for its own engine so that it can be repeated"
            )

    def _check_foreign(self) -> None:
        """Raise ValueError for settings that do not go with engines that are there, or with none."""
        here = ("backend", "dtype", "tensor_parallel", "arguments", "python", "draft", "standby")
        there = ("release", "on_release", "released")
        idle = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        if odd := [name for name in idle if name in (here if self.url else there)]:
            why = "of engines that the run starts, and" if self.url else "of engines that are there, and no"
            raise ValueError(f"engine.{odd[0]} is {why} engine.url is given: leave it out")
        if bool(self.on_release) != (self.release == "hook"):
            raise ValueError("engine.release = hook and engine.on_release, its command, go together")
        if odd := [url for url in self.url if not url.startswith(("http://", "https://"))]:
            raise ValueError(f"engine.url holds {odd[0]!r}: write http://HOST:PORT")
