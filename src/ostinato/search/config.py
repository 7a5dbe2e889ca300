"""The settings of a search service."""

from dataclasses import dataclass, field
from pathlib import Path

from ostinato.config import NO_SETTING


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """The settings of a search service.

    >>> SearchConfig(cache=Path("search.db"), key="secret").model
    'hashed'
    """

    cache: Path
    """File of what was embedded. It can be deleted at any time."""
    key: str = field(default="", repr=False, metadata=NO_SETTING)
    """A key that may search; empty when only `store` says."""
    store: str = ""
    """The gateway's store: its keys may search."""
    model: str = "hashed"
    """`hashed` or `minilm`."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    max_mb: int = 2048
    """Size of the cache; the least recently used goes."""
