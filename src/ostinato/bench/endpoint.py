"""Any OpenAI-compatible endpoint as a side of a comparison, beside the versions of a run."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import aiohttp

from ostinato.harness.client import Ask, GatewayClient, GatewayRefused, GatewayUnavailable, Message, Reply
from ostinato.types import Signal, Source, new_id

TOO_MANY, SERVER_ERROR = 429, 500
ANSWERS_S, REFUSES_S = 5.0, 4.0
"""Seconds that an endpoint has to answer at all, and to refuse a request: less than ten together."""


class EndpointError(RuntimeError):
    """Nothing answers at an address, or it refuses every request; the message says what to do."""


class Endpoint(GatewayClient):
    """A chat-completions endpoint under the name that it gives a model. It keeps no record of sessions.

    `Endpoint("http://127.0.0.1:8000/v1", "", model="qwen3")`
    """

    def __init__(self, url: str, key: str, *, model: str, patience_s: float = 60.0) -> None:
        super().__init__(url, key, patience_s=patience_s)
        self.url, self.model = url.rstrip("/"), model

    async def check(self) -> None:
        """Ask for one token before a long run. Raises EndpointError within ten seconds.

        A server that is slow or overloaded is no error: only one that is not there, or that refuses.
        """
        try:
            async with asyncio.timeout(ANSWERS_S), self._open("/v1/models", None, {}):
                pass
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
            reason = str(error) or f"no answer within {ANSWERS_S:.0f} s"
            raise EndpointError(f"nothing answers at {self.url}: {reason}; is it started?") from error
        except GatewayRefused:
            pass  # it answers; some servers list no models
        greeting = {"role": "user", "content": "Reply with one word."}
        ask = Ask(
            session_id=new_id(), turn=0, messages=(greeting,), tools=(), max_tokens=1, source=Source.BENCH
        )
        try:
            async with asyncio.timeout(REFUSES_S):
                await self.reply(ask)
        except GatewayRefused as error:
            raise EndpointError(
                f"{self.url} refuses the requests of the bench ({error.status}): {error.message}. The key is "
                "in OSTINATO_BENCH_KEY or a --key-file; at a gateway of ostinato it needs the role admin"
            ) from error
        except (GatewayUnavailable, TimeoutError):
            pass

    async def reply(self, ask: Ask, on_text: Callable[[str], None] | None = None) -> Reply:
        """Return the next message.

        A failure of the server, or a body that is no chat completion, raises GatewayUnavailable: the pass is
        void, since nobody knows how the model would have answered. Raises GatewayRefused for a wrong request.
        """
        try:
            reply = await super().reply(replace(ask, model=self.model), on_text)
            return replace(reply, message=_checked(reply.message))
        except GatewayRefused as error:
            if error.status != TOO_MANY and error.status < SERVER_ERROR:
                raise
            raise GatewayUnavailable(str(error)) from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise GatewayUnavailable(
                f"{self.url} answered with no chat completion: {error!r:.200}"
            ) from error

    async def signal(self, signal: Signal) -> None:
        """Do nothing: an endpoint takes no facts about sessions."""


def _checked(message: Message) -> Message:
    """Return an assistant's message in the form that the harness reads; raises TypeError, KeyError."""
    content, calls = message.get("content"), message.get("tool_calls") or []
    if not isinstance(content, str | None) or not isinstance(calls, list):
        raise TypeError(f"the message is {message!r:.100}")
    for call in calls:
        named = (call["id"], call["function"]["name"], call["function"]["arguments"])
        if not all(isinstance(each, str) for each in named):
            raise TypeError(f"the call is {call!r:.100}")
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return kept | {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
