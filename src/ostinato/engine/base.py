"""The protocol of every engine, and the errors that a caller can get. Torch-free."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ostinato.types import Abilities, Completion, Distribution, GenerateRequest

ROUTE_DTYPE = np.dtype("<u2")
"""The number of one expert, as the routes of a `Completion` hold it."""
PAUSED = "the engine is paused, resume it first"
"""The reason why weights are not swapped during a pause: the caller that paused relies on the version
served."""


class EngineError(Exception):
    """The engine cannot serve a request; the message says what to change."""


class RequestError(EngineError):
    """The request is at fault and would fail again. Every other EngineError is the engine's own failure."""


class PromptTooLongError(RequestError):
    """The prompt leaves no room for one sampled token in the engine's context."""


class InvalidRequestError(RequestError):
    """The request cannot be sampled: empty prompt, unknown token id, unknown sampling setting."""


class LoadRefusedError(EngineError):
    """New weights were refused: missing, damaged or of another shape. The old version is served on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One sampled token as it is streamed.

    >>> Token(id=3, logprob=-0.5, version=7).version
    7
    """

    id: int
    logprob: float
    version: int
    distribution: Distribution = Distribution.TEMPERED


class Engine(Protocol):
    """Samples tokens with logprobs and versions; weights are swapped between two decode steps."""

    @property
    def version(self) -> int: ...

    @property
    def abilities(self) -> Abilities:
        """The model that it serves, and the requests that it can honour; the same for its whole life."""
        ...

    async def generate(self, request: GenerateRequest) -> Completion:
        """Sample one completion. Raises EngineError; cancelling the call frees its slot."""
        ...

    def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        """Yield tokens as they are sampled, then the whole Completion.

        Closing the iterator frees the slot.
        """
        ...

    async def swap(self, version: int, tensors: Mapping[str, Any]) -> None:
        """Serve these weights from the next decode step; requests in flight keep the keys and values they
        have.

        Raises LoadRefusedError, and changes nothing, when they do not fit and while the engine is paused.
        """
        ...

    async def pause(self) -> None:
        """Sample no token until `resume`. Requests are kept, and new ones wait."""
        ...

    async def resume(self) -> None:
        """Go on where `pause` stopped; without a pause nothing happens."""
        ...

    def stats(self) -> dict[str, float]:
        """Return counters since the start: requests, tokens, swaps, failed and more."""
        ...
