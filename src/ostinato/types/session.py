"""The session: one agent on one task, and the facts that were observed about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ostinato.types.ids import new_id


class Source(StrEnum):
    """The occasion of a session."""

    LIVE = "live"
    PRACTICE = "practice"
    BENCH = "bench"
    TEACHER = "teacher"
    IMPORTED = "imported"
    """Recorded by another program, and read into the record from its logs: no token of it is ours."""

    @property
    def of_people(self) -> bool:
        """True where a person worked, whose consent decides; ostinato ran the others itself."""
        return self in {Source.LIVE, Source.IMPORTED}


class Ending(StrEnum):
    """The way a session ended. The list is closed, and each session has exactly one ending."""

    FINISHED = "finished"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105
    BROKEN = "broken"
    ABANDONED = "abandoned"
    INFRASTRUCTURE = "infrastructure"
    """The infrastructure failed. Such a session gets no reward: it is void and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One agent on one task. Its turns and signals lie beside it in the store.

    >>> Session(id="s1", source=Source.LIVE, user="ada", arm="main", task_id=None, harness="9f",
    ...         started_at=0.0).ending
    """

    id: str
    source: Source
    user: str
    arm: str
    task_id: str | None
    harness: str
    """Hash of the tool schemas and the system prompt."""
    started_at: float
    ending: Ending | None = None
    organisation: str = ""
    consent: bool = False
    """True when its organisation and its user had agreed to training when it began. Sessions that ostinato
    runs itself always have consent."""


class SignalKind(StrEnum):
    """The kinds of facts observed of a session. The value is 1.0 or 0.0 unless a comment says otherwise."""

    ENDING = "ending"  # the value is an Ending
    HIDDEN_TESTS = "hidden_tests"  # 1.0 when every hidden test passed
    TAMPERED = "tampered"  # 1.0 when a protected file was changed
    GRADE = "grade"
    """The value is the `Grade` of the verdict on the hidden tests. A verdict without one was judged."""
    REPORTED = "reported"
    """1.0 when the final message names the contradiction in the request; recorded only where there is one."""
    EDIT_KEPT = "edit_kept"
    EDIT_EDITED = "edit_edited"  # the developer kept the edit after changing it
    EDIT_REVERTED = "edit_reverted"
    NO_EDIT_WANTED = "no_edit_wanted"
    """A person judged a session that needed no edit; 1.0 when its answer was right."""
    COMPLAINT = "complaint"  # a follow-up in anger
    RATING = "rating"  # a person's thumb: 1.0 up, 0.0 down
    FOLLOW_UP = "follow_up"
    """The probability that the developer's next words show dissatisfaction, as a judge read them."""
    EDIT_COMMITTED = "edit_committed"  # the share of the edit that its commit holds, from 0 to 1
    EDIT_SURVIVAL = "edit_survival"  # the share of the edit that was left at that moment, from 0 to 1
    BACKGROUND = "background"
    """The session works by itself in the background: nobody watches it, and its report is read later. Silence
    before its ending means that its machine or its process is gone, not that a person left."""
    CANCELLED = "cancelled"  # the developer stopped the agent while it worked
    TESTS_RUN = "tests_run"  # the developer ran tests on the work; 1.0 when they passed
    ABANDONED = "abandoned"  # a simulated developer left. For real developers the ending says so
    QUESTION_ANSWERED = "question_answered"
    """The agent asked; 1.0 when the question was needed. Only simulated developers and the cards of tasks can
    tell, so practice's reward reads it and the live one does not."""
    PATCH = "patch"  # the value is a unified diff of what the session changed, at most 20,000 characters
    BEYOND = "beyond"
    """The number of lines that the session changed beyond what the task needs; recorded only where the task
    has a reference solution."""
    NETWORK_REFUSED = "network_refused"
    """The number of connections that the session's sandbox was refused; recorded only where there was one."""
    COMMENT = "comment"  # the value is free text
    DEMONSTRATION = "demonstration"  # the value is the edited final text
    TOOL_DECISION = "tool_decision"  # a person was asked for permission; 1.0 when they allowed the call
    USER_PROMPT = "user_prompt"  # the developer said something to the agent; 1.0 each time
    ERROR = "error"  # the value is the client's account of its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One observed fact about a session, during it or long after.

    >>> Signal(session_id="s1", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=0.0).turn is None
    True
    """

    session_id: str
    kind: SignalKind
    value: float | str
    observed_at: float
    """The time of the fact, as far as its reporter knows; never later than `received_at`."""
    turn: int | None = None
    edit: str | None = None
    """The edit it is about; None when it is about the turn, or about the session as a whole."""
    received_at: float | None = None
    """The time at which the gateway received it; None for a fact that this process observed itself."""
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An observation in the words of the client that sent it: the raw material of signals.

    >>> Event(id="e1", name="edit.revert", user="ada", observed_at=0.0, session_id="s1").attributes
    {}
    """

    id: str
    name: str
    user: str
    observed_at: float
    organisation: str = ""
    session_id: str | None = None
    """The id that the client uses; perhaps of a session that is not recorded yet, or never will be."""
    turn: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values, secrets already redacted."""
