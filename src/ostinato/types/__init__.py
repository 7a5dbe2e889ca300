"""The nouns that cross rooms. Every room may come in, and imports them from here, not from the files below.

    Task ──► Session = Turn, Turn, … ──► Signal, Signal, … ──► Reward ──► Sample ──► Checkpoint
                                                                                        │
                                         Verdict ◄── Report ◄───────── Arm ◄────────────┘

This room uses the standard library only. `version` is an int and the only word for which policy. All times
are seconds since the epoch, all durations seconds. Sequences of token ids are tuples so that a Turn can be
hashed, compared and shared.
"""

from ostinato.types.abilities import Abilities
from ostinato.types.access import DEVELOPER, ApiKey, Role
from ostinato.types.codec import from_json, to_json
from ostinato.types.ids import IdError, call_id, completed, new_id, turn_of_call
from ostinato.types.release import PRIMARY, Arm, Decision, Report, Score, Verdict, by_weight
from ostinato.types.reward import PartState, Reward, RewardPart
from ostinato.types.sample import Group, Routes, Sample
from ostinato.types.session import Ending, Event, Session, Signal, SignalKind, Source
from ostinato.types.step import GapFigures, KindFigures, Percentiles, StepFigures
from ostinato.types.task import Grade, Task
from ostinato.types.turn import (
    TEACHER_VERSION,
    Completion,
    Distribution,
    FinishReason,
    GenerateRequest,
    Sampling,
    State,
    Structure,
    StructureKind,
    Turn,
    TurnKind,
    TurnOutline,
)
from ostinato.types.version import Checkpoint

__all__ = [
    "DEVELOPER", "PRIMARY", "TEACHER_VERSION", "Abilities", "ApiKey", "Arm", "Checkpoint", "Completion",
    "Decision",
    "Distribution", "Ending", "Event", "FinishReason", "GapFigures", "GenerateRequest", "Grade", "Group",
    "IdError", "KindFigures", "PartState", "Percentiles", "Report", "Reward", "RewardPart", "Role", "Routes",
    "Sample",
    "Sampling", "Score", "Session", "Signal", "SignalKind", "Source", "State", "StepFigures", "Structure",
    "StructureKind", "Task", "Turn", "TurnKind", "TurnOutline", "Verdict",
    "by_weight", "call_id", "completed", "from_json", "new_id", "to_json", "turn_of_call",
]  # fmt: skip
