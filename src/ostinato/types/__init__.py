"""The nouns: everything that travels between rooms, and nothing else. Standard library only. ::

    Task ──► Session = Turn, Turn, … ──► Signal, Signal, … ──► Reward ──► Sample ──► Checkpoint
                                                                                        │
                                         Verdict ◄── Report ◄───────── Arm ◄────────────┘

`version` is an int and the only word for which policy. All times are seconds since the epoch, all durations
seconds. Sequences of token ids are tuples so that a Turn can be hashed, compared and shared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ostinato.types.ids import call_id as call_id
from ostinato.types.ids import new_id as new_id
from ostinato.types.ids import turn_of_call as turn_of_call
from ostinato.types.observed import Event as Event
from ostinato.types.observed import PartState as PartState
from ostinato.types.observed import Reward as Reward
from ostinato.types.observed import RewardPart as RewardPart
from ostinato.types.observed import Signal as Signal
from ostinato.types.observed import SignalKind as SignalKind
from ostinato.types.sampled import Completion as Completion
from ostinato.types.sampled import FinishReason as FinishReason
from ostinato.types.sampled import GenerateRequest as GenerateRequest
from ostinato.types.sampled import Sample as Sample
from ostinato.types.sampled import Sampling as Sampling

TEACHER_VERSION = -1
"""The version of tokens that a script wrote."""


class Source(StrEnum):
    """Why a session took place."""

    LIVE = "live"
    PRACTICE = "practice"
    BENCH = "bench"
    TEACHER = "teacher"


class Ending(StrEnum):
    """How a session ended: a closed list, each session has exactly one."""

    FINISHED = "finished"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105
    BROKEN = "broken"
    ABANDONED = "abandoned"
    INFRASTRUCTURE = "infrastructure"
    """Something of ours failed. Never a reward: the session is void and counted."""


class TurnKind(StrEnum):
    """What a turn was for."""

    MAIN = "main"
    SIDE = "side"
    """A client's call beside the work, such as a title: recorded, not trained."""
    SUMMARY = "summary"
    """The agent's own account of its work, from which the session goes on."""


class State(StrEnum):
    """What became of a recorded turn. Each turn ends in exactly one; none is dropped silently."""

    TRAINED = "trained"
    NO_ADVANTAGE = "no_advantage"  # every rollout of the group scored the same: the gradient is zero
    STALE = "stale"
    MEASURED = "measured"  # bench and A/B: for scoring, never for training
    CENSORED = "censored"  # live: the fact that its reward needs can still arrive
    VOID = "void"  # infrastructure failed or the run was interrupted, counted
    UNTRAINABLE = "untrainable"  # tokens not exact, counted
    WITHHELD = "withheld"  # live: nobody consented to training on it
    PURGED = "purged"  # its tokens were removed at the user's wish before they were trained on


class Decision(StrEnum):
    """What is to be done with a candidate. To admit it to a test with developers is not to promote it."""

    PROMOTE = "promote"
    """Shown to be better."""
    PROMOTE_CHEAPER = "promote_cheaper"
    """Not shown to be better: shown to be no worse by a margin, and cheaper."""
    ADMIT = "admit"
    """May meet developers in an A/B."""
    HOLD = "hold"
    ROLL_BACK = "roll_back"

    @property
    def promotes(self) -> bool:
        return self in {Decision.PROMOTE, Decision.PROMOTE_CHEAPER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be done, where, and how it will be checked.

    >>> Task(id="pebble-k1-0f3a", kind="fix", split="seeds", key="9d1c", instruction="calc.py is off",
    ...      directory=Path("tasks/pebble-k1-0f3a"), test_ids=("test_hidden.py::test_alpha",)).kind
    'fix'
    """

    id: str
    kind: str
    split: str
    key: str
    """Hash of the semantic key: two tasks with the same key are the same problem."""
    instruction: str
    directory: Path
    """The Harbor task directory; `directory/environment/repo` is the git repository."""
    test_ids: tuple[str, ...]
    """Hidden tests that must all pass, exactly these."""
    protected: tuple[str, ...] = ()
    """Paths in the repository that the agent must leave alone (visible tests, configuration)."""
    timeout_s: float = 60.0
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.directory / "environment" / "repo"

    @property
    def tests(self) -> Path:
        return self.directory / "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model call, exactly as sampled.

    >>> Turn(session_id="s1", index=0, segment=0, arm="main", prompt_ids=(1, 2), started_at=0.0,
    ...      latency_s=0.1, completion=Completion(ids=(3,), logprobs=(-0.1,), versions=(7,),
    ...      finish=FinishReason.STOP)).id
    's1/0'
    """

    session_id: str
    index: int
    segment: int
    """Turns of one segment extend each other's tokens; a changed history starts a new segment."""
    arm: str
    prompt_ids: tuple[int, ...]
    completion: Completion
    started_at: float
    latency_s: float
    broken: str | None = None
    """Why the text could not be read as a message or tool call; None when it could."""
    kind: TurnKind = TurnKind.MAIN
    untrainable: str | None = None
    """Why its context is not exactly what this session saw and said; None when it is."""
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def id(self) -> str:
        return f"{self.session_id}/{self.index}"


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
    """Whether its organisation and its user had agreed to training when it began; ours always has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All samples of one prompt: what the ledger offers to the trainer, whole."""

    id: str
    prompt: str
    """The ledger's key of the prompt: trained at most once."""
    samples: tuple[Sample, ...]
    rewards: tuple[float, ...]
    """One total for each session that began on its own, a forked one's the mean of its branches; the learner
    divides by how many there are."""
    kind: str = ""
    """The kind of the task, so that it can be counted what was trained on and what came too late."""

    @property
    def oldest_version(self) -> int:
        return min(sample.oldest_version for sample in self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A version and its share of traffic.

    >>> Arm(name="champion", version=40, share=0.5, engine="http://127.0.0.1:9001").share
    0.5
    """

    name: str
    version: int
    share: float
    """Fraction of users in [0, 1]; 0 for an arm that is reached only by a pinned key."""
    engine: str
    """Address of the engine that serves it."""
    experiment: str = ""
    """Id of the trial that it is in; users are dealt anew for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A proportion with its 95 % Wilson interval."""

    solve: float
    n: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a version scores on held-out tasks, by split."""

    version: int
    scores: Mapping[str, Score]
    rates: Mapping[str, float] = field(default_factory=dict)
    """Behaviour beside the score: mean turns; shares that tampered, asked, broke a call, ran tests."""
    harness: str = ""
    """Hash of the harness it was measured under; scores under two are not compared."""
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Promote, hold or roll back, with the evidence."""

    version: int
    decision: Decision
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
