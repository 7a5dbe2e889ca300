"""A vLLM that is already there, behind the engine protocol: ids in, ids and log-probabilities out.

It is asked over `/v1/completions`, which takes token ids as the prompt and, with `return_token_ids`, returns
the ids that were sampled. Whether the server returns ids and log-probabilities is found out at the start by
sampling one token. It has no weights of ours to swap and cannot be paused.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Self

import aiohttp

from ostinato.engine.base import EngineError, InvalidRequestError, LoadRefusedError, Token
from ostinato.engine.limits import RequestLimits
from ostinato.types import Abilities, Completion, Distribution, FinishReason, GenerateRequest

COMPLETIONS = "/v1/completions"
SAMPLING = frozenset(
    {"top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"}
)
"""The fields of `Sampling`, beside temperature and seed, that vLLM's completions know by the same names."""
FIXED = "a remote engine serves the weights it was started with: swap and pause it where it runs"


class RemoteEngine:
    """The client of one server; `version` is what its operator says it serves.

    >>> await RemoteEngine.connect("http://gpu-1:8000", tokenizer=digest, vocabulary=49152)  # doctest: +SKIP
    """

    def __init__(self, url: str, http: aiohttp.ClientSession, limits: RequestLimits, version: int) -> None:
        self._url, self._http = url, http
        self._limits = limits
        self._version = version
        self._counts = {"requests": 0.0, "tokens": 0.0, "failed": 0.0}

    @classmethod
    async def connect(
        cls, url: str, *, tokenizer: str, vocabulary: int, key: str = "", version: int = 0
    ) -> Self:
        """Find out what the server at `url` serves and can do.

        `tokenizer` and `vocabulary` are the digest and the size of the tokenizer that it should have. Raises
        EngineError when it does not respond, serves several models, or returns no token ids.
        """
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        http = aiohttp.ClientSession(
            url,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=300),
            connector=aiohttp.TCPConnector(limit=0),
        )
        try:
            model, context = await _served(http, url)
            abilities = Abilities(model=model, tokenizer=tokenizer, context=context, sampling=SAMPLING)
            engine = cls(
                url, http, RequestLimits(vocabulary=vocabulary, max_len=context, abilities=abilities), version
            )
            probe = GenerateRequest(
                request_id="probe", session_id="probe", prompt_ids=(0,), stop_ids=(), max_tokens=1
            )
            await engine.generate(probe)
        except BaseException:
            await http.close()
            raise
        return engine

    @property
    def version(self) -> int:
        return self._version

    @property
    def abilities(self) -> Abilities:
        return self._limits.abilities

    async def generate(self, request: GenerateRequest) -> Completion:
        async with aclosing(self.stream(request)) as events:
            async for event in events:
                if isinstance(event, Completion):
                    return event
        raise AssertionError("a stream ends with its completion")

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        self._limits.check(request)
        self._counts["requests"] += 1
        tokens, finish = list[Token](), None
        try:
            async with aclosing(self._choices(self._body(request))) as choices:
                async for choice in choices:
                    new = _tokens(choice, self._version)
                    finish = choice.get("finish_reason") or finish
                    tokens += new
                    for token in new:
                        yield token
            if finish not in {"stop", "length"}:
                raise EngineError(f"{request.request_id}: the server ended the request with {finish!r}")
        except EngineError:
            self._counts["failed"] += 1
            raise
        self._counts["tokens"] += len(tokens)
        yield Completion(
            ids=tuple(token.id for token in tokens),
            logprobs=tuple(token.logprob for token in tokens),
            versions=(self._version,) * len(tokens),
            finish=FinishReason.STOP if finish == "stop" else FinishReason.LENGTH,
            distribution=Distribution.MODEL,
        )

    async def swap(self, version: int, tensors: Mapping[str, Any]) -> None:
        raise LoadRefusedError(f"version {version} was refused: {FIXED}")

    async def pause(self) -> None:
        raise EngineError(FIXED)

    async def resume(self) -> None:
        raise EngineError(FIXED)

    def stats(self) -> dict[str, float]:
        return {**self._counts, "version": self._version}

    async def aclose(self) -> None:
        """Close the connections; the server goes on."""
        await self._http.close()

    def _body(self, request: GenerateRequest) -> dict[str, Any]:
        sampling = request.sampling
        return {
            "model": self.abilities.model,
            "prompt": list(request.prompt_ids),
            "temperature": sampling.temperature,
            # All of them, since vLLM takes what is left out from the checkpoint's generation_config.json.
            **{name: getattr(sampling, name) for name in sorted(SAMPLING)},
            "max_tokens": min(request.max_tokens, self._limits.max_len - len(request.prompt_ids)),
            "seed": sampling.seed % 2**63,
            "stop_token_ids": list(request.stop_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
            "stream": True,
        }

    async def _choices(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the choices in the server-sent events of one request."""
        try:
            async with self._http.post(COMPLETIONS, json=body) as response:
                if response.status != 200:
                    kind = InvalidRequestError if response.status == 400 else EngineError
                    raise kind(f"{response.url}: {response.status} {(await response.text())[:300]}")
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        yield _choice(json.loads(line[6:]))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError(f"{self._url}: it does not respond ({error!r})") from error


async def _served(http: aiohttp.ClientSession, url: str) -> tuple[str, int]:
    """Return the name and the context of the one model served."""
    try:
        async with http.get("/v1/models") as response:
            if response.status != 200:
                raise EngineError(f"{response.url}: {response.status} {(await response.text())[:300]}")
            models = (await response.json(content_type=None))["data"]
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EngineError(f"{url}: it does not respond ({error!r})") from error
    if len(models) != 1 or not models[0].get("max_model_len"):
        raise EngineError(f"{url} serves {[each['id'] for each in models]}: need one model of vLLM")
    return str(models[0]["id"]), int(models[0]["max_model_len"])


def _choice(event: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in event:
        raise EngineError(f"the server: {event['error']}")
    return dict((event.get("choices") or [{}])[0])


def _tokens(choice: Mapping[str, Any], version: int) -> list[Token]:
    """Return the sampled tokens of a choice. Raises EngineError for text without its ids."""
    ids = choice.get("token_ids")
    if ids is None and choice.get("text"):
        raise EngineError("the server returns no token ids: a vLLM from 0.10.2 on does")
    scores = (choice.get("logprobs") or {}).get("token_logprobs") or []
    return [
        Token(id=id_, logprob=score, version=version, distribution=Distribution.MODEL)
        for id_, score in zip(ids or (), scores, strict=True)
    ]
