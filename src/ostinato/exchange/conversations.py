"""Recorded turns read back as conversations: messages with their calls, and the events of a session's log."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ostinato.harness.session_log import LogEvent, LogEventKind
from ostinato.model.families import Renderer, assistant_message
from ostinato.model.families.hermes import END_RESPONSE, RESPONSE
from ostinato.model.template import TOOLS_HEAD
from ostinato.model.tokenizer import IM_START
from ostinato.model.transcript import blocks, tools_of
from ostinato.store.redaction.find import redact, redact_json
from ostinato.types import Session, Turn, TurnKind, call_id

Message = dict[str, Any]


class ExchangeError(ValueError):
    """The error for what cannot be read or written; the message says what, where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """One segment of a session as messages, secrets redacted.

    >>> Dialogue(segment=0, messages=(), turns=(), tools=()).turns
    ()
    """

    segment: int
    messages: tuple[Message, ...]
    turns: tuple[tuple[int, Turn], ...]
    """The place of each turn's answer in the messages, and the turn."""
    tools: tuple[Mapping[str, Any], ...]


def checkpoint_of(folder: Path | None) -> Path:
    """Return the checkpoint with the tokenizer of a run folder's record. Raises ExchangeError."""
    named = [] if folder is None else [folder / "checkpoints" / "start"]
    settings = Path() if folder is None else folder / "processes.toml"
    if settings.is_file():
        tables = tomllib.loads(settings.read_text()).values()
        named += [Path(table["checkpoint"]) for table in tables if "checkpoint" in table]
    for each in named:
        if (each / "tokenizer.json").is_file():
            return each
    raise ExchangeError(
        "which tokenizer has this record? Name a folder with its tokenizer.json: --checkpoint"
    )


def dialogues(turns: Sequence[Turn], renderer: Renderer) -> list[Dialogue]:
    """Return the segments of a session as messages; calls beside the work, and lost prompts, are left out.

    Raises ExchangeError for a chat format that is not ChatML, whose prompts cannot be read back.
    """
    if renderer.tokenizer.id_of(IM_START) is None:
        raise ExchangeError(
            "the record's chat format is not ChatML and is read as tokens alone: --format tokens"
        )
    kept = [turn for turn in turns if turn.kind is not TurnKind.SIDE and turn.prompt_ids]
    segments = groupby(sorted(kept, key=lambda turn: turn.segment), key=lambda turn: turn.segment)
    return [_dialogue(segment, list(some), renderer) for segment, some in segments]


def _dialogue(segment: int, turns: Sequence[Turn], renderer: Renderer) -> Dialogue:
    messages, answers, known = list[Message](), list[tuple[int, Turn]](), 0
    for turn in turns:
        _read(turn.prompt_ids[known:], renderer, messages)
        parsed = renderer.parse(turn.completion.ids)
        ids = [call_id(turn.index, n) for n in range(len(parsed.tool_calls))]
        answers.append((len(messages), turn))
        messages.append(assistant_message(parsed, ids))
        known = len(turn.prompt_ids) + len(turn.completion.ids)
    system, tools = messages[0]["content"] if messages[0]["role"] == "system" else "", list[Message]()
    if TOOLS_HEAD in system:
        try:
            tools = tools_of(system)
            messages[0]["content"] = system.partition(TOOLS_HEAD)[0].rstrip()
        except ValueError:  # a client's own text that begins like an offer of tools stays text
            tools = []
    if tools and not messages[0]["content"]:
        messages, answers = messages[1:], [(place - 1, turn) for place, turn in answers]
    return Dialogue(
        segment=segment,
        messages=tuple(redacted(message) for message in messages),
        turns=tuple(answers),
        tools=tuple(redact_json(tool) for tool in tools),
    )


def _read(ids: Sequence[int], renderer: Renderer, messages: list[Message]) -> None:
    """Add the messages of a prompt, or of what a prompt adds, to those before."""
    for block in blocks(renderer.tokenizer, ids):
        if not block.closed:
            continue
        calls = messages[-1].get("tool_calls", ()) if messages else ()
        if block.role == "assistant":
            parsed = renderer.parse_text(block.text)
            made = [f"call_{len(messages)}_{n}_before" for n in range(len(parsed.tool_calls))]
            messages.append(assistant_message(parsed, made))
        elif block.role == "user" and calls and block.text.startswith(RESPONSE):
            results = block.text.removeprefix(RESPONSE).removesuffix(END_RESPONSE)
            texts = results.split(f"{END_RESPONSE}\n{RESPONSE}", len(calls) - 1)
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": text}
                for call, text in zip(calls, texts, strict=False)
            ]
        else:
            messages.append({"role": block.role, "content": block.text})


def redacted(message: Message) -> Message:
    """Return a message in which every text is redacted once more: the rules may be newer than the record."""
    made = {**message, "content": redact(message.get("content") or "")}
    if message.get("reasoning_content"):
        made["reasoning_content"] = redact(message["reasoning_content"])
    if message.get("tool_calls"):
        made["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _arguments(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return made


def _arguments(raw: str) -> str:
    """Return the JSON of a call's arguments without secrets, as it was written where there is none."""
    value = json.loads(raw)
    redacted = redact_json(value)
    return raw if redacted == value else json.dumps(redacted, ensure_ascii=False)


def events_of(session: Session, dialogue: Dialogue) -> list[LogEvent]:
    """Return a dialogue as the log of a session, which every exporter reads."""
    made, at = dict(dialogue.turns), session.started_at
    system = dialogue.messages[0]["content"] if dialogue.messages[0]["role"] == "system" else ""
    first = {"id": session.id, "root": "", "profile": "", "harness": session.harness}
    events = [
        LogEvent(
            kind=LogEventKind.SESSION, at=at, data={**first, "tools": [*dialogue.tools], "system": system}
        )
    ]
    for place, message in enumerate(dialogue.messages):
        turn = made.get(place)
        at = at if turn is None else turn.started_at + turn.latency_s
        if message["role"] == "tool":
            data = {"id": message["tool_call_id"], "text": message["content"], "error": None}
            events.append(LogEvent(kind=LogEventKind.OBSERVATION, at=at, data=data))
        elif message["role"] == "assistant":
            events.append(LogEvent(kind=LogEventKind.REPLY, at=at, data={"message": message, **_reply(turn)}))
        elif place or not system:
            events.append(LogEvent(kind=LogEventKind.USER, at=at, data={"text": message["content"]}))
    if session.ending is not None:
        events.append(LogEvent(kind=LogEventKind.ENDING, at=at, data={"ending": session.ending.value}))
    return events


def _reply(turn: Turn | None) -> dict[str, Any]:
    if turn is None:  # said before the record began
        return dict.fromkeys(("turn", "finish", "broken", "arm", "version")) | {"tokens": 0}
    return {
        "turn": turn.index,
        "finish": turn.finish.value,
        "tokens": len(turn.prompt_ids) + turn.sampled,
        "broken": turn.broken,
        "arm": turn.arm,
        "version": turn.completion.versions[-1] if turn.completion.versions else None,
    }
