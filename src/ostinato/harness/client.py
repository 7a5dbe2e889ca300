"""The client of the gateway: HTTP with bounded patience for a gateway that restarts.

The agent has no other way out.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiohttp

from ostinato.harness.profiles.profile import CORE
from ostinato.types import Signal, Source, TurnKind, to_json
from ostinato.web.patience import Patience
from ostinato.web.port import root_of

RETRIED = {502, 503, 504}
MODEL = "ostinato"
"""The name of the model that every gateway of ours serves."""
MISMATCH = "x-ostinato-harness-mismatch"
"""The header that names the harness that the model was trained under, when that is another one."""
CONTEXT_CODE = "context_length_exceeded"

Message = dict[str, Any]
T = TypeVar("T")


class GatewayUnavailable(Exception):  # noqa: N818
    """The gateway or the engine behind it did not come back within the client's patience."""


class GatewayRefused(Exception):  # noqa: N818
    """The gateway responded with an error that no retry can cure, such as a wrong key or a bad request."""

    def __init__(self, status: int, message: str, code: str | None) -> None:
        super().__init__(f"the gateway refused with {status}: {message}")
        self.status = status
        self.message = message
        self.code = code


class ContextExceeded(GatewayRefused):
    """The conversation is longer than the model can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """The tokens that some replies took, as their server counted them; None where it did not say.

    >>> (TokenCount(prompt=5, completion=2) + TokenCount(prompt=7, completion=1, reasoning=1)).prompt
    12
    """

    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    """The part of the completions that was reasoning."""

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Self:
        """Return the counts of the `usage` of a chat completion."""
        details = usage.get("completion_tokens_details") or {}
        return cls(
            prompt=usage.get("prompt_tokens"),
            completion=usage.get("completion_tokens"),
            reasoning=details.get("reasoning_tokens"),
        )

    def __add__(self, other: "TokenCount") -> "TokenCount":
        """Return the sum; a count that one side lacks is unknown."""
        return TokenCount(
            prompt=_sum(self.prompt, other.prompt),
            completion=_sum(self.completion, other.completion),
            reasoning=_sum(self.reasoning, other.reasoning),
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


NOTHING = TokenCount(prompt=0, completion=0, reasoning=0)
"""The usage of no reply at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One assistant message, which is sent back unchanged; `broken` is the reason why it cannot be used.

    >>> Reply(message={"role": "assistant", "content": "done"}, finish="stop", tokens=9).broken is None
    True
    """

    message: Message
    finish: str
    tokens: int
    """The number of tokens of prompt and completion together."""
    broken: str | None = None
    turn: int | None = None
    """The index under which the gateway recorded the turn; None when the gateway did not say."""
    arm: str | None = None
    version: int | None = None
    """The newest version that sampled a token of it."""
    trained_under: str | None = None
    """The hash of the harness that the model was trained under, when that is another one; else None."""
    usage: TokenCount = field(default_factory=TokenCount, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request for a reply.

    >>> Ask(session_id="s1", turn=0, messages=({"role": "user", "content": "hi"},), tools=()).source.value
    'live'
    """

    session_id: str
    turn: int | None
    """The index of the requested turn.

    When the same index is requested again after a lost response, the gateway repeats what it recorded. None
    when the index is unknown, because the client gave up on an earlier response.
    """
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    max_tokens: int = 256
    temperature: float = 1.0
    source: Source = Source.LIVE
    task_id: str | None = None
    kind: TurnKind = TurnKind.MAIN
    harness: str = CORE.hash
    """The `Profile.hash` of the prompt and tools that the model is shown."""
    model: str = MODEL
    """The name under which the server knows the model."""
    seed: int | None = None
    """The seed of the sampling; None lets the gateway derive one from the session's id and the turn."""

    def headers(self) -> dict[str, str]:
        task = {"X-Task-Id": self.task_id} if self.task_id is not None else {}
        turn = {"X-Turn": str(self.turn)} if self.turn is not None else {}
        return {
            "X-Session-Id": self.session_id,
            "X-Session-Source": self.source.value,
            "X-Harness-Hash": self.harness,
            **turn,
            **({"X-Turn-Type": self.kind.value} if self.kind is not TurnKind.MAIN else {}),
            **task,
        }

    def body(self, *, stream: bool) -> bytes:
        value = {
            "model": self.model,
            "messages": self.messages,
            "tools": self.tools,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        seed = {} if self.seed is None else {"seed": self.seed}
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return json.dumps(value | seed | streaming).encode()


def open_http(connect_s: float = 10.0) -> aiohttp.ClientSession:
    """Return a session of keep-alive connections for any number of clients, each made within `connect_s`.
    Call it inside a running loop.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=300)
    return aiohttp.ClientSession(connector=connector, timeout=timeout)


class GatewayClient:
    """A keep-alive client of one gateway, which every agent of a process shares.

    `base_url` is a function where the gateway may move to another host. `patience_s` bounds the wait for a
    gateway that is away; then GatewayUnavailable is raised. `on_wait` takes the cause when such a wait
    begins. Callers that share one `http` between clients close it themselves; a client without one makes and
    closes its own.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        api_key: str,
        *,
        patience_s: float = 60.0,
        http: aiohttp.ClientSession | None = None,
        on_wait: Callable[[Exception], None] | None = None,
    ) -> None:
        self._where = base_url
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._patience_s = patience_s
        self._http = http
        self._owns_http = http is None
        self._on_wait = on_wait

    @property
    def _base_url(self) -> str:
        url = self._where if isinstance(self._where, str) else self._where()
        return root_of(url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._http is not None and self._owns_http:
            await self._http.close()
            self._http = None

    async def reply(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Reply:
        """Return the assistant's next message; with `on_text` it is streamed and passed on piece by piece.

        Raises GatewayUnavailable, GatewayRefused, ContextExceeded.
        """
        path, body = "/v1/chat/completions", ask.body(stream=on_text is not None)
        if on_text is None:
            return await self._patiently(lambda: self._whole(path, body, ask.headers()))
        return await self._patiently(lambda: self._streamed(path, body, ask.headers(), on_text))

    async def signal(self, signal: Signal) -> None:
        """Post one signal; posting it again is harmless. Raises GatewayUnavailable, GatewayRefused."""
        await self._post("/feedback", json.dumps(to_json(signal)).encode(), {})

    async def served(self, model: str = MODEL, *, harness: str = CORE.hash) -> dict[str, Any]:
        """Return what the gateway says of a model, such as `max_model_len`, and of what it records for this
        key; `trained_under` is the harness of its training where that is another one than `harness`. It asks
        once, without patience: raises GatewayRefused, GatewayUnavailable.
        """
        return await self._get(f"/v1/models/{quote(model)}", {"X-Harness-Hash": harness})

    async def models(self) -> list[dict[str, Any]]:
        """Return what the gateway says of all models that it serves, as `served` does."""
        listed = (await self._get("/v1/models", {})).get("data")
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

    async def _get(self, path: str, headers: dict[str, str]) -> dict[str, Any]:
        try:
            async with self._open(path, None, headers) as response:
                found, trained = await response.json(), response.headers.get(MISMATCH)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise GatewayUnavailable(f"{self._base_url} did not answer: {error}") from error
        return found | {"trained_under": trained} if isinstance(found, dict) else {}

    async def _post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        async def once() -> bytes:
            async with self._open(path, body, headers) as response:
                return await response.read()

        return await self._patiently(once)

    @asynccontextmanager
    async def _open(
        self, path: str, body: bytes | None, headers: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a response: POST with a body, GET without one."""
        if self._http is None:
            self._http = open_http()
        headers = self._headers | headers
        method, url = "GET" if body is None else "POST", self._base_url + path
        async with self._http.request(method, url, data=body, headers=headers) as response:
            if response.status >= 400:
                raise _refusal(response.status, await response.read())
            yield response

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        patience, is_told = Patience(self._patience_s), False
        while True:
            try:
                return await attempt()
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
                cause: Exception = error
            except GatewayRefused as error:
                if error.status not in RETRIED:
                    raise
                cause = error
            if self._on_wait is not None and not is_told:
                is_told = True
                self._on_wait(cause)
            if not await patience.lasts():
                raise GatewayUnavailable(f"{self._base_url} did not answer: {cause}") from cause

    async def _whole(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        async with self._open(path, body, headers) as response:
            return _sourced(_reply(await response.json()), response.headers)

    async def _streamed(
        self, path: str, body: bytes, headers: dict[str, str], on_text: Callable[[str], None]
    ) -> Reply:
        folded = _Folded()
        async with self._open(path, body, headers) as response:
            async for line in response.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    text = folded.add(json.loads(line[6:]))
                    if text:
                        on_text(text)
            return _sourced(folded.reply(), response.headers)


class _Folded:
    """A streamed reply, put together from its chunks."""

    def __init__(self) -> None:
        self._content = ""
        self._calls: dict[int, Message] = {}
        self._finish: str | None = None
        self._tokens = 0
        self._usage = TokenCount()
        self._broken: str | None = None
        self._version: int | None = None

    def add(self, chunk: Message) -> str:
        """Add one chunk and return the text that it added. An error inside the stream is raised as a 503."""
        if "error" in chunk:
            raise GatewayRefused(503, chunk["error"]["message"], chunk["error"].get("code"))
        if chunk.get("usage"):
            self._tokens, self._usage = chunk["usage"]["total_tokens"], TokenCount.of(chunk["usage"])
        extra = chunk.get("ostinato", {})
        self._broken, self._version = extra.get("broken") or self._broken, extra.get("version", self._version)
        text = ""
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") or ""
            self._content += text
            for part in choice["delta"].get("tool_calls", []):
                self._add_call(part)
            self._finish = choice["finish_reason"] or self._finish
        return text

    def _add_call(self, part: Message) -> None:
        """Begin a call, or add a piece to the arguments of one: long ones come in several chunks."""
        call = self._calls.get(part["index"])
        if call is None:
            self._calls[part["index"]] = {name: value for name, value in part.items() if name != "index"}
        else:
            before = call["function"]
            arguments = before["arguments"] + part["function"]["arguments"]
            self._calls[part["index"]] = {**call, "function": {**before, "arguments": arguments}}

    def reply(self) -> Reply:
        """Return the whole reply; raises ClientPayloadError, which is retried, when the stream was cut."""
        if self._finish is None:
            raise aiohttp.ClientPayloadError("the stream ended in the middle")
        message: Message = {"role": "assistant", "content": self._content or None}
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        return Reply(
            message=message,
            finish=self._finish,
            tokens=self._tokens,
            broken=self._broken,
            version=self._version,
            usage=self._usage,
        )


def _reply(body: Message) -> Reply:
    choice = body["choices"][0]
    return Reply(
        message=choice["message"],
        finish=choice["finish_reason"],
        tokens=body["usage"]["total_tokens"],
        broken=body.get("ostinato", {}).get("broken"),
        version=body.get("ostinato", {}).get("version"),
        usage=TokenCount.of(body["usage"]),
    )


def _sourced(reply: Reply, headers: Mapping[str, str]) -> Reply:
    """Return the reply with the arm, version and turn that the gateway names in its headers."""
    turn = headers.get("x-ostinato-turn")
    return replace(
        reply,
        turn=None if turn is None else int(turn),
        arm=headers.get("x-ostinato-arm"),
        trained_under=headers.get(MISMATCH),
    )


def _refusal(status: int, body: bytes) -> GatewayRefused:
    try:
        error = json.loads(body)["error"]
        message, code = error["message"], error.get("code")
    except (ValueError, KeyError, TypeError):
        message, code = body[:200].decode(errors="replace"), None
    return (ContextExceeded if code == CONTEXT_CODE else GatewayRefused)(status, message, code)
