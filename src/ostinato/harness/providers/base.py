"""The protocols of what tools may use outside the sandbox.

The caller of the agent brings the implementations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ostinato.harness.profiles.offers import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One hit of a search: a part of a file, from line `first` to line `last`, counted from 1.

    >>> Hit(path="calc.py", first=1, last=2, text="def alpha(a, b):\\n    return a - b").last
    2
    """

    path: str
    first: int
    last: int
    text: str


class Search(Protocol):
    """A search by meaning in the files that a sandbox has now."""

    async def search(self, query: str, *, path: str | None, k: int) -> Sequence[Hit]:
        """Return the `k` closest parts below `path` (None: everywhere), the best first.

        Raises ProviderError when the service does not respond.
        """
        ...


class MoreTools(Protocol):
    """Further tools that somebody else runs, offered beside those of the profile."""

    @property
    def offers(self) -> Sequence[Offer]: ...

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Run one call and return the text that the model reads; raises ToolError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """The providers of one agent.

    >>> Providers().search is None
    True
    """

    search: Search | None = None
    tools: MoreTools | None = None


NONE = Providers()
