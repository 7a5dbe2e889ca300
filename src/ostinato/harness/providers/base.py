"""What tools may call on outside the sandbox, as protocols: given to the agent by whoever starts it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.harness.profiles.offers import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A part of a file that a search found; lines count from 1, both ends included.

    >>> Hit(path="calc.py", first=1, last=2, text="def alpha(a, b):\\n    return a - b").last
    2
    """

    path: str
    first: int
    last: int
    text: str


class Search(Protocol):
    """Finds by meaning in the files that a sandbox has now."""

    async def search(self, query: str, *, path: str | None, k: int) -> Sequence[Hit]:
        """The `k` closest parts below `path` (None: everywhere), best first.

        Raises ProviderError when the service does not answer.
        """
        ...


class MoreTools(Protocol):
    """Tools that somebody else runs, offered beside those of the profile."""

    @property
    def offers(self) -> Sequence[Offer]: ...

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """What the model reads. Raises ToolError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """What an agent was given.

    >>> Providers().search is None
    True
    """

    search: Search | None = None
    tools: MoreTools | None = None


NONE = Providers()
