"""Sessions from logs of single model calls: LiteLLM's standard logging payload, and Langfuse's observations.

Each call holds its whole prompt. Calls of one session that continue each other are one thread; a call with
another history begins one. They must be in the order in which they were made, as such logs are written.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ostinato.exchange.logs.base import Damage, Message, Said, Transcript, call, each_line, moment, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One model call of a log.

    >>> LoggedCall(session="s", client="litellm", model="m", user="", messages=(), answer={}, at=0.0).tools
    ()
    """

    session: str
    client: str
    model: str
    user: str
    messages: Sequence[Message]
    answer: Message
    at: float
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(slots=True)
class _Sessions:
    """The sessions so far; of each, the history that its last call left."""

    found: dict[str, Transcript] = field(default_factory=dict)
    history: dict[str, list[Message]] = field(default_factory=dict)

    def add(self, one: LoggedCall) -> None:
        session = self.found.setdefault(
            one.session, Transcript(id=one.session, client=one.client, model=one.model, user=one.user)
        )
        before = self.history.get(one.session, [])
        if one.messages[: len(before)] != before or tuple(one.tools) != tuple(session.tools[-1]):
            session.restart(one.tools)
            before = []
        for message in one.messages[len(before) :]:
            if message["role"] in {"assistant", "tool"}:
                session.threads[-1].append(Said(message=message, at=one.at))
            else:
                session.add(message["role"], message["content"], one.at)
        session.threads[-1].append(Said(message=one.answer, at=one.at, answer=True))
        self.history[one.session] = [*one.messages, one.answer]


def litellm(paths: Sequence[Path]) -> Iterator[Transcript | Damage]:
    """Yield the sessions of files with a `StandardLoggingPayload` a line."""
    return _read(paths, _litellm)


def langfuse(paths: Sequence[Path]) -> Iterator[Transcript | Damage]:
    """Yield the sessions of files with an observation a line, as exported with its trace's fields."""
    return _read(paths, _langfuse)


def _read(paths: Sequence[Path], read: Any) -> Iterator[Transcript | Damage]:
    sessions = _Sessions()

    def take(line: dict[str, Any]) -> None:
        if (one := read(line)) is not None:
            sessions.add(one)

    for path in paths:
        yield from each_line(path, take)
    yield from sessions.found.values()


def _litellm(line: dict[str, Any]) -> LoggedCall | None:
    if line["status"] != "success" or not line["call_type"].endswith("completion"):
        return None
    about, given = line.get("metadata") or {}, line.get("model_parameters") or {}
    users = line.get("end_user"), about.get("user_api_key_user_id"), given.get("user")
    return LoggedCall(
        session=f"litellm/{line.get('session_id') or line['trace_id']}",
        client="litellm",
        model=line["model"],
        user=next(filter(None, users), ""),
        messages=[_message(each) for each in line["messages"]],
        answer=_message(line["response"]["choices"][0]["message"]),
        at=moment(line["startTime"]),
        tools=given.get("tools") or (),
    )


def _langfuse(line: dict[str, Any]) -> LoggedCall | None:
    def named(snake: str) -> Any:  # the API writes the names in another way than the export
        head, *rest = snake.split("_")
        return line.get(snake, line.get(head + "".join(map(str.capitalize, rest))))

    if line["type"] != "GENERATION":
        return None
    given, output = _value(line["input"]), _value(line["output"])
    if isinstance(output, Mapping) and "choices" in output:
        output = output["choices"][0]["message"]
    whole = given if isinstance(given, Mapping) else {"messages": given}
    return LoggedCall(
        session=f"langfuse/{named('session_id') or named('trace_id')}",
        client="langfuse",
        model=named("provided_model_name") or line.get("model") or "",
        user=named("user_id") or "",
        messages=[_message(each) for each in whole["messages"]],
        answer=_message(output if isinstance(output, Mapping) else {"role": "assistant", "content": output}),
        at=moment(named("start_time")),
        tools=whole.get("tools") or (),
    )


def _value(logged: Any) -> Any:
    """Return what a field holds, which an export may have as its JSON; other text stays text."""
    try:
        return json.loads(logged) if isinstance(logged, str) else logged
    except ValueError:
        return logged


def _message(logged: Mapping[str, Any]) -> Message:
    """Return a message of OpenAI's dialect with the fields that a conversation consists of."""
    message: Message = {"role": logged["role"], "content": text_of(logged.get("content"))}
    if made := logged.get("tool_calls"):
        functions = [(each["id"], each["function"]) for each in made]
        message["tool_calls"] = [call(id, of["name"], of["arguments"]) for id, of in functions]
    if message["role"] == "tool":
        message["tool_call_id"] = logged["tool_call_id"]
    if message["role"] not in {"system", "developer", "user", "assistant", "tool"}:
        raise ValueError(f"a message has the role {message['role']!r}")
    return message
