"""The limits that a request must keep before an engine samples it."""

from dataclasses import dataclass, field

from ostinato.engine.base import InvalidRequestError, PromptTooLongError
from ostinato.types import Abilities, GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits of one engine.

    Token ids are below `vocabulary`; prompt and completion together have at most `max_len` tokens. Of the
    sampling settings beside temperature and seed it knows those in `abilities`.

    >>> RequestLimits(vocabulary=512, max_len=128).max_len
    128
    """

    vocabulary: int
    max_len: int
    abilities: Abilities = field(default_factory=Abilities)

    def check(self, request: GenerateRequest) -> None:
        """Raise InvalidRequestError or PromptTooLongError, naming the request, unless it keeps the limits."""
        count = len(request.prompt_ids)
        if not count or request.max_tokens < 1:
            raise InvalidRequestError(
                f"{request.request_id}: {count} prompt tokens, max_tokens {request.max_tokens}: "
                "need at least one of each"
            )
        check_sampling(request, self.abilities)
        unknown = [i for i in (*request.prompt_ids, *request.stop_ids) if not 0 <= i < self.vocabulary]
        if unknown:
            raise InvalidRequestError(
                f"{request.request_id}: ids {unknown[:3]} are not below {self.vocabulary}"
            )
        if count >= self.max_len:
            raise PromptTooLongError(
                f"{request.request_id}: a prompt of {count} tokens leaves no room in {self.max_len}: "
                "shorten it, or give the engine a larger context (--context of `ostinato serve`, max_len "
                "elsewhere)"
            )


def check_sampling(request: GenerateRequest, abilities: Abilities) -> None:
    """Raise InvalidRequestError, naming the request, for a sampling setting that is not among `abilities`."""
    if lacking := abilities.lacks(request.sampling):
        raise InvalidRequestError(
            f"{request.request_id}: the engine {abilities.model!r} cannot sample with {', '.join(lacking)}: "
            "leave it out"
        )
