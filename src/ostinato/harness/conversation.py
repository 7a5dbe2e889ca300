"""The conversation of one session as it stands, and its recovery from the session's log."""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ostinato.harness.client import NOTHING, Message, Reply, TokenCount
from ostinato.harness.execute import ToolResult
from ostinato.harness.permissions.rules import Action, Permissions, Rule
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.profiles.profile import Profile
from ostinato.harness.profiles.prompt import SUMMARY, SUMMARY_LINE
from ostinato.harness.session_log import LogEvent, LogEventKind, SessionLog
from ostinato.harness.tools.names import shown
from ostinato.types import Ending, Source

PLAN = "todo_write"
"""The canonical name of the tool that sets the plan."""
LINE = re.compile(rb"[^\n]*\n|[^\n]+")
"""A line as git counts them."""
INTERRUPTED = "interrupted before the call had answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call: as the model wrote it, and as the harness reads it.

    >>> Call(id="c0", name="read", arguments={"path": "x"}, meant=Reading(tool="read", arguments={})).tool
    'read'
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    meant: Reading

    @property
    def tool(self) -> str:
        """The canonical name."""
        return self.meant.tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One file before and after a call; None where there is no file.

    >>> Edit(path="new.py", before=None, after=b"x = 1\\n").hashes[0] is None
    True
    """

    path: str
    before: bytes | None
    after: bytes | None
    trees: tuple[str, str] = ("", "")
    """The checkpoints before and after the call."""

    @property
    def lines(self) -> list[tuple[int, int, str]]:
        """Return the first line, last line (from 1) and hash of each region that is new in the file."""
        old, new = (LINE.findall(side or b"") for side in (self.before, self.after))
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        regions = [(j1, j2) for kind, _, _, j1, j2 in blocks if kind != "equal" and j2 > j1]
        return [(j1 + 1, j2, f"sha256:{_sha256(b''.join(new[j1:j2]))}") for j1, j2 in regions]

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        """The SHA-256 of both contents."""
        return _sha256(self.before), _sha256(self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a prompt, or of a whole session of one prompt, as its agent saw it.

    >>> Outcome(session_id="s1", ending=Ending.FINISHED, final_message="ok", turns=1, calls=()).broken
    0
    """

    session_id: str
    ending: Ending
    final_message: str
    """The text of the last message without a tool call; empty when there is none."""
    turns: int
    calls: tuple[str, ...]
    broken: int = 0
    transcript: tuple[Message, ...] = ()
    reason: str = ""
    """The reason of an ending that the agent did not choose."""
    usage: TokenCount = field(default_factory=TokenCount, compare=False)
    """The tokens of all replies of the conversation so far."""
    refused: int = 0
    """The connections that the session's sandbox was refused."""


@dataclass(slots=True)
class Conversation:
    """A session as it stands. With a log, every event is on the disk before the next one happens."""

    session_id: str
    permissions: Permissions
    source: Source = Source.LIVE
    task_id: str | None = None
    log: SessionLog | None = None
    seed: int | None = None
    """The seed that those of all turns are derived from; None leaves them to the gateway."""
    messages: list[Message] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """The user's words, one text for each prompt; they are never summarised."""
    next_turn: int | None = 0
    """The index that the gateway will give the next reply; None after a request whose response was lost."""
    last_turn: int | None = None
    """The index of the last reply."""
    tokens: int = 0
    """The number of tokens of the last prompt and completion together."""
    first: int | None = None
    """The number of tokens of the first prompt: the instructions, before any work."""
    plan: list[tuple[str, str]] = field(default_factory=list)
    """The steps of the last plan and their states."""
    summaries: int = 0
    """The summaries so far."""
    usage: TokenCount = NOTHING
    """The tokens of all replies of this process."""
    told: set[str] = field(default_factory=set)
    """The directories whose instructions the model has read."""
    # The fields below belong to the prompt in progress.
    turns: int = 0
    broken: int = 0
    calls: list[str] = field(default_factory=list)
    final: str = ""
    reason: str = ""

    def branch(self, session_id: str, seed: int | None = None) -> "Conversation":
        """Return another session, without a log, that goes on from here; this one stays as it is."""
        return replace(
            self,
            session_id=session_id,
            seed=seed,
            log=None,
            messages=list(self.messages),
            words=list(self.words),
            plan=list(self.plan),
            calls=list(self.calls),
            told=set(self.told),
            next_turn=0,
            last_turn=None,
        )

    def seed_of(self, turn: int | None) -> int | None:
        """Return the seed below 2**62 of a turn; the same when the turn is sampled again."""
        if self.seed is None or turn is None:
            return None
        digest = hashlib.blake2b(f"{self.seed}/{turn}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 2

    def note(self, kind: LogEventKind, **data: Any) -> None:
        if self.log is not None:
            self.log.append(kind, **data)

    def start(self, text: str) -> None:
        """Add the user's next words."""
        self.turns, self.broken, self.calls, self.final, self.reason = 0, 0, [], "", ""
        self.note(LogEventKind.USER, text=text)
        self.words.append(text)
        self.messages.append({"role": "user", "content": text})

    def add_reply(self, reply: Reply, turn: int) -> None:
        self.note(
            LogEventKind.REPLY,
            turn=turn,
            message=reply.message,
            finish=reply.finish,
            tokens=reply.tokens,
            prompt=reply.usage.prompt,
            broken=reply.broken,
            arm=reply.arm,
            version=reply.version,
        )
        self.turns += 1
        self.last_turn, self.next_turn = turn, turn + 1
        self.tokens = reply.tokens
        self.first = reply.usage.prompt if self.first is None else self.first
        self.usage += reply.usage
        self.messages.append(reply.message)

    def add_observation(self, call_id: str | None, text: str, error: str | None = None) -> None:
        """Add the text that the model reads after a call, or after an unreadable reply when `call_id` is
        None.
        """
        self.note(LogEventKind.OBSERVATION, id=call_id, text=text, error=error)
        self.messages.append(_observed(call_id, text))

    def observe(self, call: Call, observation: ToolResult) -> None:
        error = None if observation.error is None else type(observation.error).__name__
        self.add_observation(call.id, observation.text, error)

    def note_edit(self, call: Call, edit: Edit) -> None:
        before, after = edit.hashes
        self.note(
            LogEventKind.EDIT,
            id=call.id,
            path=edit.path,
            before=before,
            after=after,
            lines=[list(span) for span in edit.lines],
            trees=list(edit.trees),
        )

    def grant(self, rules: Iterable[Rule]) -> None:
        """Permit what the user said "always" to, for the rest of the session."""
        self.permissions = self.permissions.granting(rules)

    def undone(self, restored: Sequence[str], left: Sequence[str]) -> None:
        """Note that the user took changes back; the model reads it with their next words."""
        self.note(LogEventKind.UNDO, restored=list(restored), left=list(left))
        self.messages.append({"role": "user", "content": undone(restored, left)})

    def note_plan(self, arguments: Mapping[str, Any]) -> None:
        """Remember the plan that a call of `todo_write` sets."""
        self.plan = _plan(arguments)

    def restart(self, written: str) -> None:
        """Go on from a summary, as another segment with the system prompt and the user's own words.

        What was written before the line `Summary:` is thinking and stays behind. The state that the harness
        knows comes below the summary: how many there were before, and the plan.
        """
        text = _after_thinking(written) + _state(self.summaries, self.plan)
        self.note(LogEventKind.SUMMARY, text=text)
        self.messages = _restarted(self.messages[:1], self.words, text)
        self.summaries += 1
        self.tokens = 0

    def settle(self, reason: str) -> None:
        """Give every call that has no result this text as its result, so that the conversation can go on."""
        for call_id in unanswered(self.messages):
            self.add_observation(call_id, f"error: {reason}", "UserAborted")

    def outcome(self, ending: Ending) -> Outcome:
        self.note(LogEventKind.OUTCOME, ending=ending.value, reason=self.reason)
        return Outcome(
            session_id=self.session_id,
            ending=ending,
            final_message=self.final,
            turns=self.turns,
            calls=tuple(self.calls),
            broken=self.broken,
            transcript=tuple(self.messages),
            usage=self.usage,
            reason=self.reason,
        )

    def recall(self, events: Iterable[LogEvent]) -> None:
        """Restore the state at the end of a log, whose process may have died; every call gets a result."""
        events = list(events)
        self.messages = messages(events)
        self.words = [event.data["text"] for event in events if event.kind is LogEventKind.USER]
        for event in events:
            match event.kind:
                case LogEventKind.REPLY:
                    self.tokens = event.data["tokens"]
                    self.first = event.data.get("prompt") if self.first is None else self.first
                case LogEventKind.CALL if event.data["tool"] == PLAN:
                    self.note_plan(event.data["arguments"])
                case LogEventKind.SUMMARY:
                    self.summaries += 1
                case LogEventKind.ANSWERED if event.data["grant"] == "always":
                    self.grant(
                        Rule(**rule | {"action": Action(rule["action"])}) for rule in event.data["rules"]
                    )
        self.next_turn = None  # the process may have died between a request and its response
        self.settle(INTERRUPTED)


def messages(events: Iterable[LogEvent]) -> list[Message]:
    """Return the conversation in OpenAI's form, as the model read it."""
    found: list[Message] = []
    words: list[str] = []
    for event in events:
        data = event.data
        match event.kind:
            case LogEventKind.SESSION:
                found.append({"role": "system", "content": data["system"]})
            case LogEventKind.USER:
                words.append(data["text"])
                found.append({"role": "user", "content": data["text"]})
            case LogEventKind.SUMMARY:
                found = _restarted(found[:1], words, data["text"])
            case LogEventKind.REPLY:
                found.append(data["message"])
            case LogEventKind.OBSERVATION:
                found.append(_observed(data["id"], data["text"]))
            case LogEventKind.UNDO:
                found.append({"role": "user", "content": undone(data["restored"], data["left"])})
    return found


def _restarted(system: list[Message], words: Iterable[str], summary: str) -> list[Message]:
    said: list[Message] = [{"role": "user", "content": text} for text in words]
    return [*system, *said, {"role": "user", "content": SUMMARY + summary}]


def _after_thinking(written: str) -> str:
    """Return what follows the last line `Summary:`, or all of it where there is none."""
    _, line, after = f"\n{written}".rpartition(f"\n{SUMMARY_LINE}")
    return (after if line else written).strip()


def _state(summaries: int, plan: Iterable[tuple[str, str]]) -> str:
    steps = "".join(f"\n- [{status}] {step}" for step, status in plan)
    return f"\n\nSummaries before this one: {summaries}" + (f"\nYour plan:{steps}" if steps else "")


def _plan(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the steps and states of a plan, whichever word a dialect has for the text of a step."""
    lists = [value for value in arguments.values() if isinstance(value, list)]
    steps = [step for steps in lists for step in steps if isinstance(step, dict) and "status" in step]
    return [(str(step.get("content", step.get("step", ""))), str(step["status"])) for step in steps]


def unanswered(found: Iterable[Message]) -> list[str]:
    """Return the ids of the calls that have no result among the messages."""
    open_calls: dict[str, None] = {}
    for message in found:
        for call in message.get("tool_calls", ()):
            open_calls[call["id"]] = None
        if message["role"] == "tool":
            open_calls.pop(message["tool_call_id"], None)
    return list(open_calls)


def call_of(wire: Message, profile: Profile) -> Call:
    """Return a call from its form in a message."""
    name, arguments = wire["function"]["name"], json.loads(wire["function"]["arguments"])
    return Call(id=wire["id"], name=name, arguments=arguments, meant=profile.reading(name, arguments))


def undone(restored: Sequence[str], left: Sequence[str]) -> str:
    """Return the text by which the model learns of an undo, in the user's name."""
    kept = f"; left as they are now: {', '.join(map(shown, left))}" if left else ""
    return f"[I took your changes back: {', '.join(map(shown, restored)) or 'none'}{kept}]"


def _observed(call_id: str | None, text: str) -> Message:
    if call_id is None:
        return {"role": "user", "content": text}
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
