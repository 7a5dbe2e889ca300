"""Exact tokens over the turns of a session.

A conversation keeps the ids of its segment as they were sampled. A request whose messages extend what was
returned continues them; any other starts a new segment from freshly rendered text. Nothing is guessed: a
history that cannot be matched exactly is another segment.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.gateway.chat import ChatRequest, Message
from ostinato.gateway.errors import invalid
from ostinato.model.renderer import Parsed, Renderer, RenderError, assistant_message
from ostinato.types import FinishReason, Session, Turn


class Conversation:
    """One session as the gateway holds it. Use it under `lock`: its turns happen one after another."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()
        self.loaded = False
        """False until the store was asked what it knows of this session."""
        self.recorded = False
        self.turns = 0
        self.segment = 0
        self.last: Turn | None = None
        self._seen = 0
        self._mark = b""

    def load(self, session: Session | None, turns: Sequence[Turn]) -> None:
        """Takes over what the store knows; the messages behind it are unknown until `recall`."""
        self.loaded, self.recorded = True, session is not None
        self.session = session or self.session
        self.last = turns[-1] if turns else None
        self.turns = self.last.index + 1 if self.last else 0
        self.segment = self.last.segment if self.last else 0
        self._seen, self._mark = 0, b""

    def forget(self) -> None:
        """After a failed commit: the store is asked again before the next turn."""
        self.loaded = False

    def continues(self, chat: ChatRequest) -> bool:
        """Whether the request starts with exactly what was said and answered so far."""
        return (
            0 < self._seen <= len(chat.messages)
            and mark(chat.messages[: self._seen], chat.tools) == self._mark
        )

    def recall(self, turns: Sequence[Turn], chat: ChatRequest, renderer: Renderer) -> None:
        """After a restart: matches the ids of the last segment with the request, all or nothing."""
        told = [turn for turn in turns if turn.segment == self.segment]
        answers = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
        answers = answers[-len(told) :]
        if len(answers) == len(told) and _same(told, answers, chat, renderer):
            self._seen = answers[-1] + 1
            self._mark = mark(chat.messages[: self._seen], chat.tools)

    def prompt(self, chat: ChatRequest, renderer: Renderer) -> tuple[tuple[int, ...], int]:
        """Ids to continue from, and their segment. ApiError 400 for text that cannot be rendered."""
        try:
            if self.last is not None and self.continues(chat):
                stopped = self.last.completion.finish is FinishReason.STOP
                added = renderer.extend(chat.messages[self._seen :], stopped=stopped)
                return (*self.last.prompt_ids, *self.last.completion.ids, *added), self.segment
            return tuple(renderer.render(chat.messages, chat.tools)), self.segment + (self.turns > 0)
        except RenderError as error:
            raise invalid(f"messages cannot be rendered: {error}", "messages") from error

    def add(self, turn: Turn, chat: ChatRequest, answer: Message) -> None:
        """Takes a sampled turn into the conversation."""
        self.turns, self.segment, self.last = turn.index + 1, turn.segment, turn
        self._seen = len(chat.messages) + 1
        self._mark = mark((*chat.messages, answer), chat.tools)


def answer_of(parsed: Parsed, index: int) -> dict[str, Any]:
    """The assistant message of turn `index`; the same completion always gives the same message."""
    message = assistant_message(parsed, [f"call_{index}_{i}" for i in range(len(parsed.tool_calls))])
    for call in message.get("tool_calls", ()):
        call["function"] = {name: plain(text) for name, text in call["function"].items()}
    if parsed.broken is not None and message["content"] is None:
        message["content"] = ""
    return message


def plain(text: str) -> str:
    """`text` with halves of surrogate pairs, which JSON can hold and UTF-8 cannot, as question marks."""
    return text.encode(errors="replace").decode()


def mark(messages: Sequence[Message], tools: Sequence[Message]) -> bytes:
    """A digest of all that is rendered of `messages` and `tools`, whatever shape the client gave it."""
    value = json.dumps([[_essence(message) for message in messages], tools])
    return hashlib.blake2b(value.encode(), digest_size=16).digest()


def _essence(message: Message) -> list[Any]:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content)
    calls = message.get("tool_calls") or ()
    return [message["role"], content, [_call_essence(call["function"]) for call in calls]]


def _call_essence(function: Mapping[str, Any]) -> list[Any]:
    """Clients may print the arguments anew: compared as values."""
    try:
        return [function["name"], json.loads(function["arguments"])]
    except (ValueError, RecursionError):
        return [function["name"], function["arguments"]]


def _same(told: Sequence[Turn], answers: Sequence[int], chat: ChatRequest, renderer: Renderer) -> bool:
    messages = chat.messages
    try:
        expected = tuple(renderer.render(messages[: answers[0]], chat.tools))
        for i, (turn, at) in enumerate(zip(told, answers, strict=True)):
            answer = answer_of(renderer.parse(turn.completion.ids), turn.index)
            if turn.prompt_ids != expected or _essence(answer) != _essence(messages[at]):
                return False
            if i + 1 < len(answers):
                stopped = turn.completion.finish is FinishReason.STOP
                added = renderer.extend(messages[at + 1 : answers[i + 1]], stopped=stopped)
                expected = (*turn.prompt_ids, *turn.completion.ids, *added)
    except RenderError:
        return False
    return True
