"""What tools may call on outside the sandbox, as protocols: given to the agent by whoever starts it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
