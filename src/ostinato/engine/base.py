"""What every engine promises, and the errors a caller can meet. Torch-free."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ostinato.types import Completion, GenerateRequest

ROUTE_DTYPE = np.dtype("<u2")
"""The number of one expert, as the routes of a `Completion` hold it."""
PAUSED = "the engine is paused, resume it first"
"""Why nothing is swapped during a pause: whoever paused counts on what is served."""


class EngineError(Exception):
    """The engine cannot do what was asked; the message says what to change."""


class RequestError(EngineError):
    """The request is at fault: it would fail again. Every other EngineError is the engine's own failure."""


class PromptTooLongError(RequestError):
    """The prompt leaves no room for one sampled token in the engine's context."""


class InvalidRequestError(RequestError):
    """A request that cannot be sampled: empty prompt, unknown token id, negative temperature."""


class LoadRefusedError(EngineError):
    """New weights were not taken: missing, damaged or of another shape. The old version stays served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One sampled token as it is streamed.

    >>> Token(id=3, logprob=-0.5, version=7).version
    7
    """

    id: int
    logprob: float
    version: int


class Engine(Protocol):
    """A prompt in, tokens with logprobs and versions out; weights are swapped between two decode steps."""

    @property
    def version(self) -> int: ...

    async def generate(self, request: GenerateRequest) -> Completion:
        """Sample one completion. Raises EngineError; cancelling the call frees its slot."""
        ...

    def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        """Tokens as they are sampled, then the whole Completion. Closing the iterator frees the slot."""
        ...

    async def swap(self, version: int, tensors: Mapping[str, Any]) -> None:
        """Serve these weights from the next decode step; requests in flight go on with the KV they have.

        Raises LoadRefusedError, with nothing changed, when they do not fit and while the engine is paused.
        """
        ...

    async def pause(self) -> None:
        """Sample no token until `resume`. Requests are kept, and new ones wait."""
        ...

    async def resume(self) -> None:
        """Go on where `pause` stopped; nothing happens if it did not."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters since the start: requests, tokens, swaps, failed and more."""
        ...
