"""The client for engines, which waits a bounded time for one that restarts."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ostinato.gateway.errors import ApiError, unavailable
from ostinato.gateway.offload import offload
from ostinato.gateway.replicas import Replicas
from ostinato.types import (
    Abilities,
    Completion,
    Distribution,
    FinishReason,
    GenerateRequest,
    from_json,
    to_json,
)
from ostinato.web.connections import AwayError, Connection, Connections
from ostinato.web.patience import Patience
from ostinato.web.secret import ENGINE_SECRET, bearer

log = logging.getLogger(__name__)
BYTES_OF_AN_ID = 6
"""The usual length of a token's id in JSON."""

Pool = Callable[[], Awaitable[Sequence[str]]]
"""Returns the URLs of an arm's engines. It is called before each attempt, since a pool may have changed."""
HEALTH_S, HEALTH_TIMEOUT_S = 2.0, 2.0
"""The time between two health checks of a replica, and the time that one may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledToken:
    """One token as it arrives.

    >>> SampledToken(id=3, logprob=-0.5, version=7).id
    3
    """

    id: int
    logprob: float
    version: int
    distribution: Distribution = Distribution.TEMPERED


def shared_distribution(tokens: Sequence[SampledToken]) -> Distribution:
    """Return the distribution that the log-probabilities of all tokens are of; UNKNOWN if they differ."""
    kinds = {token.distribution for token in tokens}
    return kinds.pop() if len(kinds) == 1 else Distribution.UNKNOWN


EngineEvent = tuple[SampledToken, ...] | Completion


def always(*urls: str) -> Pool:
    """Return a pool that never changes."""

    async def pool() -> Sequence[str]:
        return urls

    return pool


class _EngineFailedError(Exception):
    """An engine's failure, as a 5xx or inside a stream. It is worth another attempt."""


class EngineClient:
    """Requests completions from engines.

    `patience_s` bounds the time without any progress. `secret` is the one by which engines know this gateway.
    `tokenizer` is the digest of the gateway's own; an engine that says it has another one gets no request.
    A request that one replica of a pool fails goes on at another.
    """

    def __init__(self, patience_s: float, secret: str = "", tokenizer: str = "") -> None:
        self._patience_s = patience_s
        self._tokenizer = tokenizer
        self._same_tokenizer: set[str] = set()
        self._connections = Connections({"Content-Type": "application/json"} | bearer(secret))
        self.replicas = Replicas()

    async def aclose(self) -> None:
        self._connections.close()

    async def generate(self, pool: Pool, request: GenerateRequest) -> Completion:
        """Return the whole completion.

        Raise ApiError 400 for a refused request, 503 when the engine stays away.
        """
        body = await _encoded(request)
        patience = Patience(self._patience_s)
        while True:
            try:
                with self._lease(request, await pool()) as url:
                    async with self._open(url, body) as response:
                        return _completion(await response.read())
            except (AwayError, _EngineFailedError) as error:
                await _wait(patience, error)

    async def stream(self, pool: Pool, request: GenerateRequest) -> AsyncGenerator[EngineEvent]:
        """Yield tokens as they are sampled, then the Completion; tokens that arrive together are one tuple.

        When the engine dies on the way, the next one continues after the tokens already sampled: each keeps
        the logprob and version it was sampled with.
        """
        got: list[SampledToken] = []
        patience = Patience(self._patience_s)
        while (ready := _already_complete(request, got)) is None:
            before = tuple(got)
            try:
                with self._lease(request, await pool()) as url:
                    async for event in self._stream_once(url, _continued(request, before)):
                        if isinstance(event, Completion):
                            yield _joined(before, event)
                            return
                        got += event
                        yield event
                    raise AwayError("the engine's stream ended in the middle")
            except (AwayError, _EngineFailedError) as error:
                if len(got) > len(before):
                    patience = Patience(self._patience_s)
                await _wait(patience, error)
        yield ready

    @contextmanager
    def _lease(self, request: GenerateRequest, urls: Sequence[str]) -> Iterator[str]:
        """Choose a replica for one attempt, and note whether it is there."""
        if not urls:
            raise unavailable("the arm has no engine yet: `ostinato arms set` names one", "no_engine")
        with self.replicas.lease(request.session_id, urls) as url:
            try:
                yield url
            except (AwayError, _EngineFailedError):
                self.replicas.failed(url)
                self._same_tokenizer.discard(url)  # another engine may come back at this address
                raise
            self.replicas.answered(url)

    async def watch(self, pools: Callable[[], Iterable[Sequence[str]]]) -> None:
        """Check the health of every replica of a pool with more than one, again and again."""
        while True:
            urls = {url for pool in pools() if len(pool) > 1 for url in pool}
            await asyncio.gather(*(self._check(url) for url in urls))
            await asyncio.sleep(HEALTH_S)

    async def _check(self, url: str) -> None:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S), self._connections.open(url, "/healthz") as response:
                await response.read()
                healthy = response.status == 200
        except (AwayError, TimeoutError):
            healthy = False
        if healthy:
            self.replicas.answered(url)
        elif not self.replicas.is_away(url):
            self.replicas.failed(url)

    async def context(self, urls: Sequence[str]) -> int:
        """Return the most tokens of prompt and completion that all these engines read; 0 where none says.

        An engine that is away says nothing.
        """
        told = await asyncio.gather(*(self._context(url) for url in urls))
        return min((tokens for tokens in told if tokens), default=0)

    async def _context(self, url: str) -> int:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                return (await self._abilities(url)).context
        except (AwayError, TimeoutError):
            return 0

    async def _stream_once(self, address: str, request: GenerateRequest) -> AsyncGenerator[EngineEvent]:
        body = await _encoded(request, stream=True)
        async with self._open(address, body) as response:
            rest = b""
            async for data in response.body():
                *lines, rest = (rest + data).split(b"\n")
                for event in _events(lines):
                    yield event
            if rest:
                raise AwayError("a line of the engine's stream was cut")

    @asynccontextmanager
    async def _open(self, address: str, body: bytes) -> AsyncGenerator[Connection]:
        if address not in self._same_tokenizer:
            await self._compare_tokenizers(address)
        async with self._connections.open(address, "/generate", body) as response:
            if response.status >= 400:
                raise _refused(response.status, await response.read())
            yield response

    async def _compare_tokenizers(self, address: str) -> None:
        """Ask an engine before its first request. Raises ApiError 503 when it reads ids in another way."""
        theirs = (await self._abilities(address)).tokenizer
        if self._tokenizer and theirs and theirs != self._tokenizer:
            raise unavailable(
                f"the engine at {address} has another tokenizer ({theirs[:8]}…) than this gateway "
                f"({self._tokenizer[:8]}…): start both with the same checkpoint",
                "engine_mismatch",
            )
        self._same_tokenizer.add(address)

    async def _abilities(self, address: str) -> Abilities:
        """Return the abilities in an engine's `/healthz`; the default ones where it says none."""
        async with self._connections.open(address, "/healthz") as response:
            said = await response.read()
            try:
                return from_json(Abilities, orjson.loads(said)["abilities"])
            except (ValueError, KeyError, TypeError):
                return Abilities()


async def _encoded(request: GenerateRequest, **more: bool) -> bytes:
    size = BYTES_OF_AN_ID * len(request.prompt_ids)
    return await offload(size, lambda: orjson.dumps(to_json(request) | more))


async def _wait(patience: Patience, cause: Exception) -> None:
    """Wait before the next attempt; raises ApiError 503 once the engine has stayed away for too long."""
    if not await patience.lasts():
        log.warning("the engine stayed away: %r", cause)
        raise unavailable("the engine is away, try again", "engine_unavailable") from cause


def _continued(request: GenerateRequest, got: tuple[SampledToken, ...]) -> GenerateRequest:
    if not got:
        return request
    return replace(
        request,
        prompt_ids=request.prompt_ids + tuple(token.id for token in got),
        max_tokens=request.max_tokens - len(got),
        sampling=replace(request.sampling, seed=request.sampling.seed + len(got)),
    )


def _joined(got: tuple[SampledToken, ...], rest: Completion) -> Completion:
    if not got:
        return rest
    return replace(
        rest,
        ids=tuple(token.id for token in got) + rest.ids,
        logprobs=tuple(token.logprob for token in got) + rest.logprobs,
        versions=tuple(token.version for token in got) + rest.versions,
        distribution=_common(shared_distribution(got), rest),
    )


def _common(before: Distribution, rest: Completion) -> Distribution:
    if not rest.ids or before is rest.distribution:
        return before
    return Distribution.UNKNOWN


def _already_complete(request: GenerateRequest, got: list[SampledToken]) -> Completion | None:
    """Return the completion when all tokens arrived and only the engine's last line, with the routes, was
    lost."""
    stopped = bool(got) and got[-1].id in request.stop_ids
    if not stopped and len(got) < request.max_tokens:
        return None
    finish = FinishReason.STOP if stopped else FinishReason.LENGTH
    return _joined(tuple(got), Completion(ids=(), logprobs=(), versions=(), finish=finish))


def _events(lines: list[bytes]) -> Iterator[EngineEvent]:
    """Yield the tokens of all lines at once, then the completion if it is among them."""
    sampled: list[SampledToken] = []
    for line in lines:
        value = _object(line)
        if "id" in value:
            kind = Distribution(value.get("distribution", Distribution.TEMPERED))
            sampled.append(
                SampledToken(
                    id=value["id"], logprob=value["logprob"], version=value["version"], distribution=kind
                )
            )
            continue
        if sampled:
            yield tuple(sampled)
            sampled = []
        if "error" in value:
            raise _refused(_status(value["error"]), line)
        yield _completion(line)
    if sampled:
        yield tuple(sampled)


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except ValueError:
        raise _EngineFailedError(f"not a line of JSON: {line[:80]!r}") from None
    if not isinstance(value, dict):
        raise _EngineFailedError(f"not an object: {line[:80]!r}")
    return value


def _completion(body: bytes) -> Completion:
    try:
        return from_json(Completion, orjson.loads(body))
    except ValueError as error:
        raise _EngineFailedError(f"not a completion: {error}") from error


def _status(error: Any) -> int:
    """Return the status of an error inside a stream; 500, the engine's own fault, when it has none."""
    status = error.get("status") if isinstance(error, dict) else None
    return status if isinstance(status, int) else 500


def _refused(status: int, body: bytes) -> ApiError | _EngineFailedError:
    """Return the error for a refused request: the engine's own failure, or the caller's mistake."""
    if status in {401, 403}:
        message = f"the engine does not know this gateway: start both with the same {ENGINE_SECRET}"
        return unavailable(message, "engine_refused")
    if status >= 500:
        return _EngineFailedError(f"status {status}: {body[:200].decode(errors='replace')}")
    try:
        error: dict[str, Any] = orjson.loads(body)["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = "unknown", body[:200].decode(errors="replace")
    too_long = kind == "PromptTooLongError"
    code = "context_length_exceeded" if too_long else "engine_refused"
    return ApiError(400, message, code=code, param="messages" if too_long else None)
