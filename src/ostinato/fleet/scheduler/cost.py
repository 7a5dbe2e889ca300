"""The cost of a start in CPU seconds, as measured: the currency of admission."""

from dataclasses import dataclass

from ostinato.fleet.scheduler.types import StartKind

GUESS_S = 0.25
"""The cost that is assumed before anything was started."""
GAIN = 0.1
SPREAD = 2.0
"""Deviations above the mean that are reserved: half of all starts cost more than the mean."""


@dataclass(frozen=True, slots=True)
class _Estimate:
    mean: float
    deviation: float


class StartCosts:
    """A moving mean and mean deviation for each template and kind of start (Jacobson, SIGCOMM 1988, app. A).

    A start on a node that already has the template is counted apart from one that has to fetch it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, StartKind, bool], _Estimate] = {}
        self._all: _Estimate | None = None
        """The estimate over all starts, which is used for a template that was never started."""

    def expect_s(self, template: str, kind: StartKind, *, held: bool) -> float:
        """Return the CPU seconds to reserve. The takeover of a warm sandbox costs nothing."""
        if kind is StartKind.WARM:
            return 0.0
        known = self._known.get((template, kind, held)) or self._all
        return GUESS_S if known is None else known.mean + SPREAD * known.deviation

    def learn(self, template: str, kind: StartKind, cpu_s: float, *, held: bool) -> None:
        """Record that a start has cost `cpu_s`."""
        key = (template, kind, held)
        self._known[key] = _moved(self._known.get(key), cpu_s)
        self._all = _moved(self._all, cpu_s)


def _moved(known: _Estimate | None, cpu_s: float) -> _Estimate:
    if known is None:
        return _Estimate(mean=cpu_s, deviation=cpu_s / 2)
    error = cpu_s - known.mean
    return _Estimate(
        mean=known.mean + GAIN * error,
        deviation=known.deviation + GAIN * (abs(error) - known.deviation),
    )
