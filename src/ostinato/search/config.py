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
    """The file of the cache. It can be deleted at any time."""
    key: str = field(default="", repr=False, metadata=NO_SETTING)
    """A key that may search; empty when only keys of `store` may."""
    store: str = ""
    """The gateway's store, whose keys may search."""
    model: str = "hashed"
    """`hashed` or `minilm`."""
    host: str = "127.0.0.1"
    port: int = 0
    """The port to listen on; 0 takes a free one."""
    max_mb: int = 2048
    """The size of the cache; the least recently used rows are removed beyond it."""
