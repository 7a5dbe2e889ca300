"""Answers in the shape of OpenAI's chat completions, whole and streamed."""

import codecs
import json
from collections.abc import Sequence
from typing import Any

from ostinato.gateway.chat import MODEL
from ostinato.gateway.turns import Answer
from ostinato.model.renderer import Renderer
from ostinato.types import Turn

TAG = "<tool_call>"
MARK = "\n" + TAG
DONE = b"data: [DONE]\n\n"


def headers_of(turn: Turn) -> dict[str, str]:
    return {
        "x-ostinato-session": turn.session_id,
        "x-ostinato-turn": str(turn.index),
        "x-ostinato-arm": turn.arm,
        "x-ostinato-version": str(max(turn.completion.versions, default=0)),
    }


def body_of(answer: Answer) -> bytes:
    """The whole answer."""
    choice = {"index": 0, "message": answer.message, "finish_reason": answer.finish, "logprobs": None}
    value = _envelope(answer.turn.id, "chat.completion", answer.turn.started_at) | {
        "choices": [choice],
        "usage": _usage(answer.turn),
        "ostinato": _extra(answer.turn),
    }
    return json.dumps(value).encode()


class Chunks:
    """Server-sent events of one answer. Text as it is sampled; tool calls whole, once they are recorded."""

    def __init__(self, turn_id: str, started_at: float, *, include_usage: bool) -> None:
        self._envelope = _envelope(turn_id, "chat.completion.chunk", started_at)
        self._include_usage = include_usage

    def first(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        return self._chunk({"content": piece})

    def last(self, answer: Answer, said: str) -> bytes:
        """What is left to say after `said`, the tool calls, the finish reason, the usage."""
        content = answer.message["content"] or ""
        if not content.startswith(said):
            raise AssertionError(f"streamed {said!r} is not the start of {content!r}")
        events = [self.text(content[len(said) :])] if len(content) > len(said) else []
        calls = [{"index": i} | call for i, call in enumerate(answer.message.get("tool_calls", ()))]
        if calls:
            events.append(self._chunk({"tool_calls": calls}))
        events.append(self._chunk({}, finish=answer.finish, ostinato=_extra(answer.turn)))
        if self._include_usage:
            events.append(_event(self._envelope | {"choices": [], "usage": _usage(answer.turn)}))
        return b"".join(events) + DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event(self._envelope | {"choices": [choice]} | more)


class TextStream:
    """Ids in, text out, as soon as it is sure to be content and not the beginning of a tool call."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._in_call = False
        self.said = ""

    def add(self, ids: Sequence[int]) -> str:
        """The text that `ids` make certain, possibly none."""
        words = [i for i in ids if i not in self._renderer.stop_ids]
        self._held += self._decoder.decode(self._renderer.tokenizer.decode_bytes(words))
        if self._in_call:
            return ""
        sure = self._sure()
        piece, self._held = self._held[:sure], self._held[sure:]
        self.said += piece
        return piece

    def _sure(self) -> int:
        """Length of the held text that cannot belong to a tool call or the newline before it."""
        at = self._held.find(TAG)
        if at >= 0:
            self._in_call = True
            return at - self._held[:at].endswith("\n")
        lengths = range(min(len(MARK), len(self._held)), 0, -1)
        text = self._held
        return len(text) - next(
            (n for n in lengths if MARK.startswith(text[-n:]) or TAG.startswith(text[-n:])), 0
        )


def _envelope(turn_id: str, kind: str, created: float) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn_id}", "object": kind, "created": int(created), "model": MODEL}


def _usage(turn: Turn) -> dict[str, int]:
    prompt, completion = len(turn.prompt_ids), len(turn.completion.ids)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _extra(turn: Turn) -> dict[str, Any]:
    versions = turn.completion.versions
    return {
        "session": turn.session_id,
        "turn": turn.index,
        "segment": turn.segment,
        "arm": turn.arm,
        "version": max(versions, default=None),
        "broken": turn.broken,
    }


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
