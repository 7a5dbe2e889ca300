"""A vLLM that is already there, behind the engine protocol: ids in, ids and log-probabilities out.

It is asked over `/v1/completions`, which takes token ids as the prompt and, with `return_token_ids`, returns
the ids that were sampled. Two tokens are sampled at the start, which show whether the server returns ids and
log-probabilities, of which distribution these are, and whether it has our tokenizer. What it samples without
them is recorded with placeholders, and so never trained.

`standing.py` knows which version it serves, and brings trained ones there.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

import aiohttp

from ostinato.engine.base import EngineError, InvalidRequestError, LoadRefusedError, Token
from ostinato.engine.config import EngineServerConfig
from ostinato.engine.limits import RequestLimits
from ostinato.engine.remote.probe import asked
from ostinato.engine.remote.release import cards_of
from ostinato.engine.remote.standing import Stand, Standing
from ostinato.engine.vllm.calls import VllmCalls
from ostinato.model.decoder import WeightsError
from ostinato.model.tensor_files import CheckpointError
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import Abilities, Completion, Distribution, FinishReason, GenerateRequest, Sampling

COMPLETIONS = "/v1/completions"
SAMPLING = frozenset(
    {"top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"}
)
"""The fields of `Sampling`, beside temperature and seed, that vLLM's completions know by the same names."""
TEXT = "def add(a, b):\n\treturn a + b  # 12345, größer, 漢字, 🙂\n"
PROBED_IDS = 256
"""The text that shows whether both tokenizers are the same one; after it stand the control texts of ours and
the texts of this many ids from all over its vocabulary."""
PROBED_SCORES, COLD, SAME = 5, 0.5, 0.05
"""The likeliest tokens whose log-probabilities show, at another temperature, what distribution they are of,
and the difference that computing twice may make."""
FIXED = "a remote engine serves the weights it was started with: swap and pause it where it runs"

PROBE = GenerateRequest(request_id="probe", session_id="probe", prompt_ids=(0,), stop_ids=(), max_tokens=1)


class RemoteEngine:
    """The client of one server; `version` is what its operator says it serves, until one is released there.

    >>> await RemoteEngine.connect("http://gpu-1:8000", Tokenizer.load(model))          # doctest: +SKIP
    """

    def __init__(self, calls: VllmCalls, url: str, tokenizer: Tokenizer, abilities: Abilities) -> None:
        self._calls, self._url, self._tokenizer = calls, url, tokenizer
        vocabulary = tokenizer.id_count
        self._limits = RequestLimits(vocabulary=vocabulary, max_len=abilities.context, abilities=abilities)
        self._standing = Standing(calls, url, abilities.model)
        self._counts = dict.fromkeys(("requests", "tokens", "failed", "swaps"), 0.0)

    @classmethod
    async def connect(
        cls,
        url: str,
        tokenizer: Tokenizer,
        *,
        key: str = "",
        version: int = 0,
        config: EngineServerConfig | None = None,
    ) -> Self:
        """Find out what the server at `url` serves and can do.

        `tokenizer` is the one that it should have, `config` says how versions reach it, if any do. Raises
        EngineError when the server does not respond, serves several models, has another tokenizer or a
        smaller context, or serves other weights than the checkpoint's.
        """
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        http = aiohttp.ClientSession(
            url,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=300),
            connector=aiohttp.TCPConnector(limit=0),
        )
        try:
            calls = VllmCalls(http, url, "start the server there, or name another --engine")
            model, context = await _served(calls, url, 1 if config is None else config.max_len)
            abilities = Abilities(model=model, tokenizer=tokenizer.digest, context=context, sampling=SAMPLING)
            seen = await cls(calls, url, tokenizer, abilities)._probe()
            abilities = replace(
                abilities, logprobs=seen.logprobs, token_ids=seen.token_ids, tempered=seen.tempered
            )
            engine = cls(calls, url, tokenizer, abilities)
            probed = tokenizer.encode(engine._telling_text())[: context - 1]
            await engine._standing.begin(config, probed, version)
        except BaseException:
            await http.close()
            raise
        return engine

    async def _probe(self) -> Abilities:
        """Sample two tokens and return what came with them. Raises EngineError for another tokenizer."""
        text = self._telling_text()
        plain, cold = [await self._sampled_after(text, temperature) for temperature in (1.0, COLD)]
        self._compare(self._tokenizer.encode(text), plain.get("prompt_token_ids"))
        scores = [(each.get("logprobs") or {}) for each in (plain, cold)]
        one, other = [((each.get("top_logprobs") or [{}])[0] or {}) for each in scores]
        return Abilities(
            token_ids=bool(plain.get("token_ids")),
            logprobs=bool(scores[0].get("token_logprobs")),
            tempered=any(abs(one[token] - other[token]) > SAME for token in one.keys() & other.keys()),
        )

    def _telling_text(self) -> str:
        """Return a text that fits the context, and that other tokenizers hardly turn into the same ids."""
        count = self._tokenizer.id_count
        # From the highest ids down, since these are the longest merges, the least likely to be shared.
        spread = self._tokenizer.decode(range(count - 1, -1, -max(1, count // PROBED_IDS)))
        text = TEXT + "".join(sorted(self._tokenizer.control_texts)) + spread
        if len(text.encode()) >= self._limits.max_len:
            text = spread
        while len(text.encode()) >= self._limits.max_len:
            text = text[: len(text) // 2]
        return text

    async def _sampled_after(self, text: str, temperature: float) -> dict[str, Any]:
        """Return the choice, with all its fields from the stream, of one token sampled after a text."""
        body = self._body(PROBE, self._standing.now) | {
            "prompt": text,
            "temperature": temperature,
            "logprobs": PROBED_SCORES,
        }
        fields = dict[str, Any]()
        async with aclosing(self._choices(body)) as choices:
            async for choice in choices:
                fields |= {name: value for name, value in choice.items() if value}
        return fields

    def _compare(self, ours: list[int], theirs: list[int] | None) -> None:
        if theirs is None or theirs == ours:
            return
        at = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if len(set(pair)) > 1), 0)
        raise EngineError(
            f"{self._url} serves {self.abilities.model!r} with another tokenizer than this checkpoint's: "
            f"of the same text its id {at} is {theirs[at : at + 1]} and ours {ours[at : at + 1]}; name "
            "the checkpoint that it serves"
        )

    @property
    def version(self) -> int:
        return self._standing.now.version

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
        try:
            async with self._standing.serving() as stand, aclosing(self._stream(request, stand)) as events:
                async for event in events:
                    yield event
        except EngineError:
            self._counts["failed"] += 1
            raise

    async def _stream(self, request: GenerateRequest, stand: Stand) -> AsyncGenerator[Token | Completion]:
        """Sample under the version that stands when the request comes, whatever is released meanwhile."""
        tokens, finish, distribution = list[Token](), None, self._distribution(request.sampling)
        async with aclosing(self._choices(self._body(request, stand))) as choices:
            async for choice in choices:
                new = self._tokens(choice, distribution, stand.version)
                finish = choice.get("finish_reason") or finish
                tokens += new
                for token in new:
                    yield token
        if finish not in {"stop", "length"}:
            raise EngineError(f"{request.request_id}: the server ended the request with {finish!r}")
        if finish == "stop" and not self.abilities.token_ids and request.stop_ids:
            tokens.append(_token(request.stop_ids[0], 0.0, distribution, stand.version))  # has no text
            yield tokens[-1]
        self._counts["tokens"] += len(tokens)
        yield Completion(
            ids=tuple(token.id for token in tokens),
            logprobs=tuple(token.logprob for token in tokens),
            versions=(stand.version,) * len(tokens),
            finish=FinishReason.STOP if finish == "stop" else FinishReason.LENGTH,
            distribution=distribution,
        )

    async def logprobs(self, ids: Sequence[int]) -> list[float] | None:
        """Return the log-probability of each token but the first, given those before it.

        None where the server tells none of a prompt. Raises EngineError.
        """
        return list(await asked(self._calls, self._standing.now.name, ids)) or None

    async def swap(self, version: int, tensors: Mapping[str, Any]) -> None:
        """Release a version to the server; requests in flight end under the one they began with."""
        try:
            await self._standing.release(version, tensors)
        except (EngineError, WeightsError, CheckpointError, OSError) as error:
            raise LoadRefusedError(f"version {version} was refused: {self._url}: {error}") from error
        self._counts["swaps"] += 1

    async def verify(self) -> None:
        """Ask what is served; raise EngineError, and hold the arm, while it is not what was said."""
        await self._standing.verify()

    async def pause(self) -> None:
        raise EngineError(FIXED)

    async def resume(self) -> None:
        raise EngineError(FIXED)

    def stats(self) -> dict[str, float]:
        return {**self._counts, "version": self.version, "held": bool(self._standing.held)}

    async def aclose(self) -> None:
        """Close the connections; the server goes on."""
        await self._standing.aclose()
        await self._calls.http.close()

    def _body(self, request: GenerateRequest, stand: Stand) -> dict[str, Any]:
        sampling = request.sampling
        return {
            "model": stand.name,
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
            # Keys and values of a version that was replaced in place are not those of the next.
            **({"cache_salt": f"version {stand.version}"} if stand.in_place else {}),
        }

    def _distribution(self, sampling: Sampling) -> Distribution:
        if not (self.abilities.token_ids and self.abilities.logprobs):
            return Distribution.UNKNOWN
        return sampling.drawn_from if self.abilities.tempered else Distribution.MODEL

    def _tokens(self, choice: Mapping[str, Any], distribution: Distribution, version: int) -> list[Token]:
        """Return the sampled tokens of a choice; without the server's ids those of its text.

        Raises EngineError when the server stops to return what it returned at the start.
        """
        ids = choice.get("token_ids") or ()
        scores = (choice.get("logprobs") or {}).get("token_logprobs") or ()
        if distribution is Distribution.UNKNOWN:
            ids = ids or self._tokenizer.encode_untrusted(choice.get("text") or "")
            scores = [0.0] * len(ids)
        if len(ids) != len(scores) or (choice.get("text") and not ids):
            raise EngineError(
                f"{self._url} returned {len(ids)} token ids and {len(scores)} log-probabilities of "
                f"{choice.get('text')!r}: it returned them when this engine started"
            )
        return [_token(id_, score, distribution, version) for id_, score in zip(ids, scores, strict=True)]

    async def _choices(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the choices in the server-sent events of one request."""
        try:
            async with self._calls.http.post(COMPLETIONS, json=body) as response:
                if response.status != 200:
                    kind = InvalidRequestError if response.status == 400 else EngineError
                    raise kind(f"{response.url}: {response.status} {(await response.text())[:300]}")
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        yield _choice(json.loads(line[6:]), body["model"])
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _away(self._url, error) from error


async def _served(calls: VllmCalls, url: str, context: int) -> tuple[str, int]:
    """Return the name and the context, at least `context`, of the one model served, beside its adapters."""
    models = [card for card in (await cards_of(calls)).values() if not card.get("parent")]
    if len(models) != 1 or not models[0].get("max_model_len"):
        raise EngineError(f"{url} serves {[each['id'] for each in models]}: need one model of vLLM")
    name, length = str(models[0]["id"]), int(models[0]["max_model_len"])
    if length < context:
        raise EngineError(
            f"{url} serves {name!r} with a context of {length} tokens: make engine.context, which is "
            f"{context}, at most that"
        )
    return name, length


def _token(id_: int, logprob: float, distribution: Distribution, version: int) -> Token:
    return Token(id=id_, logprob=logprob, version=version, distribution=distribution)


def _away(url: str, error: Exception) -> EngineError:
    # Some errors of the client, such as a timeout, have no words of their own.
    words = str(error) or type(error).__name__
    return EngineError(
        f"{url}: it does not respond ({words}): start the server there, or name another --engine"
    )


def _choice(event: Mapping[str, Any], model: str) -> dict[str, Any]:
    if "error" in event:
        raise EngineError(f"the server: {event['error']}")
    if event.get("model", model) != model:
        raise EngineError(f"the server responds as {event['model']!r}, and {model!r} was asked for")
    return dict((event.get("choices") or [{}])[0])
