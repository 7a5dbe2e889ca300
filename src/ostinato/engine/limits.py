"""The limits that a request must keep before an engine samples it."""

from dataclasses import dataclass

from ostinato.engine.base import InvalidRequestError, PromptTooLongError
from ostinato.types import GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits of one engine.

    Token ids are below `vocabulary`; prompt and completion together have at most `max_len` tokens.

    >>> RequestLimits(vocabulary=512, max_len=128).max_len
    128
    """

    vocabulary: int
    max_len: int

    def check(self, request: GenerateRequest) -> None:
        """Raise InvalidRequestError or PromptTooLongError, naming the request, unless it keeps the limits."""
        count = len(request.prompt_ids)
        if not count or request.max_tokens < 1 or request.temperature < 0:
            raise InvalidRequestError(
                f"{request.request_id}: {count} prompt tokens, max_tokens {request.max_tokens}, temperature "
                f"{request.temperature}: need at least one, at least one, and not below 0"
            )
        unknown = [i for i in (*request.prompt_ids, *request.stop_ids) if not 0 <= i < self.vocabulary]
        if unknown:
            raise InvalidRequestError(
                f"{request.request_id}: ids {unknown[:3]} are not below {self.vocabulary}"
            )
        if count >= self.max_len:
            raise PromptTooLongError(
                f"{request.request_id}: a prompt of {count} tokens leaves no room in {self.max_len}: "
                "shorten it or start the engine with a larger --max-len"
            )
