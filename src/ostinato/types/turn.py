"""The turn: one request to an engine, what was sampled, and what became of it in training."""

import sys
from dataclasses import dataclass, field
from enum import StrEnum

TEACHER_VERSION = -1
"""The version of tokens that a script wrote."""


class FinishReason(StrEnum):
    """The reason why the engine stopped sampling a turn."""

    STOP = "stop"
    LENGTH = "length"
    STOP_SEQUENCE = "stop_sequence"  # cut where the client's stop text was complete, without a stop token


class TurnKind(StrEnum):
    """The purpose of a turn."""

    MAIN = "main"
    SIDE = "side"  # a client's call beside the work, such as a title: recorded, not trained
    SUMMARY = "summary"  # the agent's own account of its work, from which the session goes on


class State(StrEnum):
    """The fate of a recorded turn. Each turn ends in exactly one state, so none is dropped silently."""

    TRAINED = "trained"
    NO_ADVANTAGE = "no_advantage"  # every rollout of the group scored the same, so the gradient is zero
    STALE = "stale"
    MEASURED = "measured"  # sampled by a benchmark or an A/B trial: for scoring, never for training
    CENSORED = "censored"  # live: the fact that its reward needs can still arrive
    VOID = "void"  # the infrastructure failed or the run was interrupted
    UNTRAINABLE = "untrainable"  # its tokens are not known exactly
    WITHHELD = "withheld"  # live: nobody consented to training on it
    PURGED = "purged"  # its tokens were removed at the user's request before they were trained on


class Distribution(StrEnum):
    """The distribution that the recorded log-probabilities of a turn are of."""

    MODEL = "model"  # softmax(logits): without the temperature and everything else in a Sampling
    TEMPERED = "tempered"  # softmax(logits / temperature)
    PROCESSED = "processed"  # the one drawn from, with penalties, temperature, cuts and structure in it
    UNKNOWN = "unknown"  # the engine gave none: the numbers are placeholders


class StructureKind(StrEnum):
    """The language in which a `Structure` says which text is allowed."""

    JSON_OBJECT = "json_object"  # any JSON object
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "grammar"  # in the notation that the engine reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A form that the sampled text is held to: at each token the engine allows only what keeps to it.

    >>> Structure(kind=StructureKind.REGEX, text="yes|no").kind.value
    'regex'
    """

    kind: StructureKind
    text: str = ""
    """The schema as JSON, the expression or the grammar; empty for any JSON object."""

    def __post_init__(self) -> None:
        if (self.kind is StructureKind.JSON_OBJECT) != (not self.text):
            raise ValueError(f"a structure of kind {self.kind.value} got the text {self.text!r:.80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The settings, beside weights and context, that shaped the distribution a turn was drawn from.

    An engine draws from softmax(logits / temperature); the fields named by `bent` cut or bend that
    distribution. Every engine knows the temperature and the seed; its `Abilities` name what else it knows.

    >>> Sampling(temperature=0.3, seed=7).unscorable
    >>> Sampling(temperature=0.0).unscorable
    'sampled greedily'
    >>> Sampling(top_p=0.9).bent
    ('top_p',)
    """

    temperature: float = 1.0
    """0 means greedy: the likeliest token, without a draw."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all tokens."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    structure: Structure | None = None

    def __post_init__(self) -> None:
        for name, (least, most, what) in _RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {what}, got {value}")

    @property
    def bent(self) -> tuple[str, ...]:
        """The names of the settings that change the distribution beside the temperature."""
        return tuple(name for name, neutral in _NEUTRAL.items() if getattr(self, name) != neutral)

    @property
    def unscorable(self) -> str | None:
        """The reason why the trainer cannot compute the probability of the draw; None when it can."""
        if self.temperature == 0:
            return "sampled greedily"
        if self.structure is not None:
            return f"sampled under a {self.structure.kind.value}"
        return f"sampled with {', '.join(self.bent)}" if self.bent else None

    @property
    def drawn_from(self) -> Distribution:
        """The distribution of the log-probabilities that an engine computes after all these settings.

        A greedy token is not drawn: its number is that of temperature 1.
        """
        if self.bent or self.structure is not None:
            return Distribution.PROCESSED
        return Distribution.TEMPERED if self.temperature else Distribution.MODEL


_NEUTRAL = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""The values at which these fields of a Sampling change nothing."""
_PENALTY = (-2.0, 2.0, "a penalty between -2 and 2")
_RANGES = {
    "temperature": (0.0, sys.float_info.max, "a number of at least 0"),
    "top_p": (sys.float_info.min, 1.0, "a share above 0 and at most 1"),
    "top_k": (0, 2**31 - 1, "a number of tokens, 0 for all of them"),
    "min_p": (0.0, 1.0, "a share between 0 and 1"),
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "repetition_penalty": (sys.float_info.min, sys.float_info.max, "a factor above 0"),
}
"""The least and the greatest value of each field, and what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A request to an engine to continue `prompt_ids`.

    >>> GenerateRequest(request_id="r1", session_id="s1", prompt_ids=(1,), stop_ids=(3,), max_tokens=8,
    ...                 sampling=Sampling(seed=5)).sampling.seed
    5
    """

    request_id: str
    session_id: str
    prompt_ids: tuple[int, ...]
    stop_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: expected at least 1, got {self.max_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The tokens an engine sampled: each sequence has one entry per sampled token, the stop token included.

    `routes` is little-endian uint16 of shape [prompt + completion tokens - 1, moe layers, top_k], raw; None
    if the model is dense.

    >>> Completion(ids=(5, 3), logprobs=(-0.1, -0.2), versions=(7, 8), finish=FinishReason.STOP).routes
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log of the probability of each token under `distribution`."""
    versions: tuple[int, ...]
    finish: FinishReason
    routes: bytes | None = None
    distribution: Distribution = Distribution.TEMPERED

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"a completion needs one logprob and version per token, got {len(self.ids)} ids, "
                f"{len(self.logprobs)} logprobs, {len(self.versions)} versions"
            )
        if self.routes is not None and len(self.routes) % 2:
            raise ValueError(f"routes are two bytes each, got {len(self.routes)} bytes")


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
    """The reason why the text could not be read as a message or tool call; None when it could."""
    kind: TurnKind = TurnKind.MAIN
    untrainable: str | None = None
    """The reason why its context is not exactly what this session saw and said; None when it is."""
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def id(self) -> str:
        return f"{self.session_id}/{self.index}"

    @property
    def finish(self) -> FinishReason:
        return self.completion.finish

    @property
    def sampled(self) -> int:
        """The number of its sampled tokens."""
        return len(self.completion.ids)

    @property
    def unscorable(self) -> str | None:
        """The reason why the trainer cannot compute the recorded probabilities again; None when it can."""
        if self.completion.distribution is Distribution.UNKNOWN:
            return "its engine gave no log-probabilities"
        if reason := self.sampling.unscorable:
            return reason
        if self.completion.distribution is Distribution.MODEL and self.sampling.temperature != 1:
            return "its log-probabilities are not of the temperature it was sampled at"
        if self.completion.distribution is Distribution.PROCESSED:
            return "its log-probabilities are of a distribution that is not recorded"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutline:
    """A turn without its tokens: what a reward reads of it. The fields are those of `Turn`.

    >>> TurnOutline(session_id="s1", index=0, started_at=0.0, latency_s=0.1, broken=None, kind=TurnKind.MAIN,
    ...             finish=FinishReason.STOP, sampled=3).id
    's1/0'
    """

    session_id: str
    index: int
    started_at: float
    latency_s: float
    broken: str | None
    kind: TurnKind
    finish: FinishReason
    sampled: int

    @property
    def id(self) -> str:
        return f"{self.session_id}/{self.index}"
