"""The results of the demo's own stages, beside those of the loop."""

from dataclasses import dataclass

from ostinato.demo.integrity import Integrity
from ostinato.loop.results import Counters, Cycled, Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """The lessons of the scripted teacher."""

    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Practised:
    """The last version of practice, and the sessions that it took."""

    version: int
    sessions: int
    void: int
    untrainable: int
    engine: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The results of all stages of a demo, as its report is written from."""

    seed: int
    resumed: bool
    seconds: dict[str, float]
    """The time that each stage took, by its name."""
    cpu_s: float
    taught: Taught
    before: Measured
    practised: Practised
    after: Measured
    cycled: Cycled
    integrity: Integrity
