"""The settings of an engine process. Torch-free, so that the process that starts one does not load torch."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ostinato.extend import Registry

REMOTE_KEY = "OSTINATO_REMOTE_KEY"
"""The environment variable with the key of a vLLM that is already there."""
MakeEngine = Callable[["EngineServerConfig"], Awaitable[Any]]
"""Starts an engine with the methods of `engine.base` for the settings of its process."""
BACKENDS: Registry[MakeEngine | None] = Registry(
    "engine", dict.fromkeys(("auto", "embedded", "vllm", "remote"))
)
"""The engines by name: those of plug-ins, and None for ours, which `engine.server` starts."""


def engine_backend(name: str) -> Callable[[MakeEngine], MakeEngine]:
    """Return a decorator that adds an engine, for `backend = "NAME"` in `[engine]`.

    The function is async, gets the settings of the engine's process, and returns the engine. One that fails
    ends that process, and with it the stage, with its file and line.
    """

    def add(make: MakeEngine) -> MakeEngine:
        BACKENDS.add(name, make)
        return make

    return add


DraftKind = Literal["auto", "suffix", "mtp", "none"]
"""What drafts tokens (`docs/speculative.md`)."""
ReleaseWay = Literal["adapter", "hook", "weights"]
"""The ways on which a trained version reaches a vLLM that is already there (`engine/remote/release.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineServerConfig:
    """The settings of an engine server.

    >>> EngineServerConfig(checkpoint=Path("start")).slots
    96
    """

    checkpoint: Path
    """directory in Hugging Face layout"""
    objects: str | None = None
    """folder or URL of the object store that new versions come from"""
    prefix: str = "weights"
    """the prefix in the object store"""
    follow: bool = False
    """load every new version as it is published"""
    version: int | None = None
    """load this version from the object store at the start"""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one"""
    backend: str = "auto"
    """what serves the model: embedded, vllm, remote or an engine of a plug-in; auto chooses by shape, GPU and
    free memory (`engine/choose.py`)"""
    remote: str | None = None
    """URL of a vLLM that is already there (`remote`); its key is in OSTINATO_REMOTE_KEY"""
    release: ReleaseWay | Literal[""] = ""
    """how versions of `objects` reach that vLLM; without it it serves the weights it was started with"""
    on_release: tuple[str, ...] = ()
    """the command of the way `hook`"""
    released: Path | None = None
    """the folder in which released versions lie, and which that vLLM reads under the same path"""
    label: str = ""
    """the NAME in NAME@VERSION, under which that vLLM serves a version"""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """what vLLM computes in; auto takes bfloat16 where the hardware has it (`ostinato doctor`)"""
    tensor_parallel: int = 1
    """number of vLLM's workers that share each layer"""
    arguments: tuple[str, ...] = ()
    """further arguments for vLLM, as `--arguments=--gpu-memory-utilization=0.8`"""
    python: str | None = None
    """interpreter that has vLLM; none takes this one"""
    slots: int = 96
    """sequences sampled at once"""
    max_len: int = 512
    """tokens of prompt and completion together"""
    draft: DraftKind = "auto"
    """suffix drafts what followed the same tokens before, mtp that or what an MTP layer foretells, of the
    checkpoint or of the versions, and the next step verifies it; auto does so in the embedded engine, where
    that changes no token, with the layer if the checkpoint has one (`docs/speculative.md`)"""
    draft_tokens: int = 7
    """the most tokens that are drafted for a sequence in one step"""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend is {self.backend!r}: the engines are {', '.join(BACKENDS)}")
        if self.follow and self.version is not None:
            raise ValueError("follow and version exclude each other: serve the newest version or a fixed one")
        if self.backend == "remote" and self.draft in ("suffix", "mtp"):
            raise ValueError("a remote vLLM drafts as it was started: leave draft out")
        if (self.backend == "remote") != (self.remote is not None):
            raise ValueError("backend remote needs the URL of a vLLM in remote, and no other backend has one")
        if self.remote is not None and (self.objects is None) == bool(self.release):
            raise ValueError("a remote vLLM gets the versions of objects by release: give both or neither")
        if self.release and not (self.label and self.released):
            raise ValueError("release needs released, the folder of its files, and label, their name")
        if self.tensor_parallel < 1:
            raise ValueError(f"tensor_parallel is {self.tensor_parallel}: need at least 1")
        if self.draft_tokens < 1:
            raise ValueError(f"draft_tokens is {self.draft_tokens}: need at least 1, or draft none")
        if self.backend == "embedded" and (
            self.dtype == "bfloat16" or self.arguments or self.tensor_parallel > 1
        ):
            raise ValueError(
                "bfloat16, arguments and tensor_parallel are vLLM's: the embedded engine has none of them"
            )

    @property
    def for_vllm(self) -> bool:
        """Whether something is asked that only vLLM has."""
        return self.dtype == "bfloat16" or self.tensor_parallel > 1 or bool(self.arguments)
