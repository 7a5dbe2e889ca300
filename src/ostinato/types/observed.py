"""What was observed of a session, and the reward that is read from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ostinato.types.ids import new_id


class SignalKind(StrEnum):
    """What was observed of a session. `value` is 1.0/0.0 unless the comment says otherwise."""

    ENDING = "ending"  # value: an Ending
    HIDDEN_TESTS = "hidden_tests"  # 1.0 when every hidden test passed
    TAMPERED = "tampered"  # 1.0 when a protected file was changed
    FORGEABLE = (
        "forgeable"  # 1.0 when the tested code could have written the verdict itself; told where it could
    )
    REPORTED = "reported"  # 1.0 when the final message names what the request contradicts; told where it does
    EDIT_KEPT = "edit_kept"
    EDIT_EDITED = "edit_edited"  # the developer kept it after changing it
    EDIT_REVERTED = "edit_reverted"
    NO_EDIT_WANTED = "no_edit_wanted"  # the answer itself was judged by a person; value: was it right
    COMPLAINT = "complaint"  # a follow-up in anger
    ABANDONED = "abandoned"  # of simulated developers; of others the ending says it
    QUESTION_ANSWERED = "question_answered"  # the agent asked; value: was the question needed. Only simulated
    # developers can tell, so no reward reads it
    COMMENT = "comment"  # value: free text
    DEMONSTRATION = "demonstration"  # value: the edited final text
    TOOL_DECISION = "tool_decision"  # a person was asked: 1.0 when they allowed the call
    USER_PROMPT = "user_prompt"  # the developer said something to the agent, 1.0 each time
    ERROR = "error"  # value: what the client says went wrong


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
    """When it happened, as far as the one who told it knows; never later than `received_at`."""
    turn: int | None = None
    edit: str | None = None
    """The edit it is about; None when it is about the turn, or about the session as a whole."""
    received_at: float | None = None
    """When the gateway heard of it; None for what this process saw itself."""
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something a client observed, as it was told: the raw material of signals.

    >>> Event(id="e1", name="edit.revert", user="ada", observed_at=0.0, session_id="s1").attributes
    {}
    """

    id: str
    name: str
    user: str
    observed_at: float
    organisation: str = ""
    session_id: str | None = None
    """As the client names it; perhaps a session that is not recorded yet, or never will be."""
    turn: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values, secrets already redacted."""


class PartState(StrEnum):
    """How much is known of what a reward part needs."""

    OBSERVED = "observed"
    CENSORED = "censored"
    """Nothing was said yet, and it still may be: the part has no value that counts."""
    EXPIRED = "expired"
    """Nothing was said within the window: the part has the stated value of silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One named part of a reward; `value` is already weighted.

    >>> RewardPart(name="outcome", value=0.0, state=PartState.CENSORED).censored
    True
    """

    name: str
    value: float
    evidence: tuple[str, ...] = ()
    """Ids of the signals and turns it was read from."""
    state: PartState = PartState.OBSERVED

    @property
    def censored(self) -> bool:
        """Whether the fact it needs can still arrive."""
        return self.state is PartState.CENSORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A total with its named parts.

    >>> Reward(session_id="s1", definition="3f", parts=(RewardPart(name="solved", value=1.0),
    ...        RewardPart(name="effort", value=-0.25))).total
    0.75
    """

    session_id: str
    definition: str
    """Hash of the definition that computed it."""
    parts: tuple[RewardPart, ...]

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)
