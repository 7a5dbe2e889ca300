"""The settings of an engine process. Torch-free, so that the process that starts one does not load torch."""

import sys
from dataclasses import dataclass, field
from pathlib import Path


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
    vllm: str | None = field(default=None, metadata={"const": sys.executable})
    """serve by vLLM, that of this Python"""
    slots: int = 96
    """sequences sampled at once"""
    max_len: int = 512
    """tokens of prompt and completion together"""

    def __post_init__(self) -> None:
        if self.follow and self.version is not None:
            raise ValueError("follow and version exclude each other: serve the newest version or a fixed one")
