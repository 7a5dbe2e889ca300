"""The settings of a gateway, and of the process that serves one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ostinato.config import NO_SETTING

SecretPolicy = Literal["withhold", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The settings of a gateway beside its store.

    >>> GatewayConfig().engine_wait_s
    30.0
    """

    salt: str = "ostinato"
    """The salt of the hashes that assign users to arms; another salt assigns them anew."""
    engine_wait_s: float = field(default=30.0, metadata={"flag": "--engine-wait"})
    """The seconds that a request waits for an engine that is away."""
    max_body_bytes: int = 8 * 2**20
    """The largest body of a request."""
    secrets: SecretPolicy = "withhold"
    """Hide secrets in prompts from the record (`withhold`), or already from the model (`replace`)."""
    aliases: tuple[str, ...] = field(default=(), metadata={"flag": "--alias"})
    """Other names of the model; `claude-*` stands for every name that begins so."""
    allowed_hosts: tuple[str, ...] = field(default=(), metadata={"flag": "--allow-host"})
    """Names beside loopback under which a proxy on this machine passes requests on."""
    engine_secret: str = field(default="", repr=False, metadata=NO_SETTING)
    """The secret that engines expect of their callers; empty for engines in this process."""
    harness: str = ""
    """The hash of the harness that the served model is trained and measured under, which our clients then
    take; without one that in the checkpoint's own file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayServerConfig(GatewayConfig):
    """The settings of a gateway process.

    >>> GatewayServerConfig(store="store.db", checkpoint=Path("start")).host
    '127.0.0.1'
    """

    store: str
    """SQLite file or database URL"""
    checkpoint: Path
    """directory with tokenizer.json"""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one"""
