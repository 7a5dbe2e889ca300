"""The parts that the logs of other programs share: lines, messages, and damage that ends no import."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Message = dict[str, Any]
LONGEST = 64 * 2**20
"""The bytes of the longest line that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A line of a log that cannot be read; the others are.

    >>> Damage(file=Path("a.jsonl"), line=3, why="no JSON").line
    3
    """

    file: Path
    line: int
    """The number of the line, from 1; in a database the place of the message in its session."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message and its time.

    >>> Said(message={"role": "user", "content": "fix it"}, at=0.0).answer
    False
    """

    message: Message
    at: float
    answer: bool = False
    """True for what the session's own model said; an assistant's message without it is history."""
    key: str = ""
    """The answer that its pieces are logged under."""


@dataclass(slots=True, kw_only=True)
class Transcript:
    """A session of another program while its log is read: threads, each of which goes on from nothing."""

    id: str
    client: str
    """The program and its version."""
    model: str = ""
    user: str = ""
    """The person whom the log names, if it does."""
    threads: list[list[Said]] = field(default_factory=lambda: [[]])
    tools: list[Sequence[Mapping[str, Any]]] = field(default_factory=lambda: [()])
    """The tools that each thread was offered, where the log has them."""

    def add(self, role: str, text: str, at: float) -> None:
        """Add a message of a person or of the program; instructions at the very beginning are one."""
        thread = self.threads[-1]
        if role in {"system", "developer"} and (not thread or thread[-1].message["role"] == "system"):
            before = thread.pop().message["content"] + "\n\n" if thread else ""
            thread.append(Said(message={"role": "system", "content": before + text}, at=at))
        else:
            thread.append(Said(message={"role": "user", "content": text}, at=at))

    def answer(self, text: str, calls: Sequence[Message], at: float, key: str = "") -> None:
        """Add what the model said; pieces of one key, or without a result between, are one answer."""
        thread = self.threads[-1]
        for place in range(len(thread) - 1, -1, -1):
            before = thread[place]
            if before.answer and (before.key == key if key else place == len(thread) - 1):
                thread[place] = replace(before, message=_joined(before.message, text, calls))
                return
            if before.message["role"] != "tool":
                break
        message = _joined({"role": "assistant", "content": ""}, text, calls)
        thread.append(Said(message=message, at=at, answer=True, key=key))

    def result(self, call: str, text: str, at: float) -> None:
        self.threads[-1].append(Said(message={"role": "tool", "tool_call_id": call, "content": text}, at=at))

    def restart(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Begin another thread: what is said from here on was said without what came before."""
        if self.threads[-1]:
            self.threads.append([])
            self.tools.append(())
        self.tools[-1] = tools

    @property
    def began_at(self) -> float:
        return min(said.at for thread in self.threads for said in thread)

    @property
    def last_at(self) -> float:
        return max(said.at for thread in self.threads for said in thread)

    @property
    def answers(self) -> int:
        return sum(said.answer for thread in self.threads for said in thread)


Read = Callable[[Sequence[Path]], Iterator[Transcript | Damage]]
"""Reads the sessions of some logs, and names the lines that it cannot read."""


def call(id: str, name: str, arguments: Any) -> Message:
    """Return a tool call in OpenAI's form; its arguments are an object, or the JSON of one."""
    arguments = arguments or "{}"
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(read, dict) or not isinstance(name, str):
        raise ValueError(f"the call {name!r} has no object of arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(read, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": written}}


def moment(value: str | float) -> float:
    """Return seconds since the epoch of an ISO 8601 date, in UTC unless it says otherwise, or of a number."""
    if isinstance(value, str):
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return float(value)


def text_of(content: Any) -> str:
    """Return the text of a content: a text, parts with a text, or nothing; other parts leave their kind."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Mapping):
        return text_of(content["text"] if "text" in content else content["content"])
    if not isinstance(content, list):
        raise TypeError(f"a content is {content!r:.60}")
    texts = (part if isinstance(part, str) else part.get("text", f"[{part['type']}]") for part in content)
    return "\n".join(texts)


def each_line(path: Path, take: Callable[[dict[str, Any]], None]) -> Iterator[Damage]:
    """Give each object of a file of JSON lines to `take`, and yield the lines that it cannot read."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                if line.strip() and (why := _fault(line, take)):
                    yield Damage(file=path, line=number, why=why)
    except OSError as error:
        yield Damage(file=path, line=0, why=f"cannot be read: {error.strerror}")


def _fault(line: bytes, take: Callable[[dict[str, Any]], None]) -> str | None:
    """Return why a line cannot be read; None when it was."""
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            return "no JSON object"
        take(value)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"no JSON: {error}"
    except KeyError as error:
        return f"it lacks {error}"
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        return f"not as expected: {error}"
    return None


def _joined(message: Message, text: str, calls: Sequence[Message]) -> Message:
    made = {**message, "content": "\n".join(filter(None, (message["content"], text)))}
    if every := [*message.get("tool_calls", ()), *calls]:
        made["tool_calls"] = every
    return made
