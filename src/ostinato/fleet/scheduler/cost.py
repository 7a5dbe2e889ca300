"""What a start costs, in CPU seconds, as measured: the currency of admission."""

from dataclasses import dataclass

from ostinato.fleet.scheduler.pod import How

GUESS_S = 0.25
"""Before anything was started."""
GAIN = 0.1
SPREAD = 2.0
"""Deviations above the mean that are set aside: half of all starts cost more than the mean."""


@dataclass(frozen=True, slots=True)
class _Estimate:
    mean: float
    deviation: float


class StartCosts:
    """A moving mean and mean deviation for each template and kind of start (Jacobson, SIGCOMM 1988, app. A).

    A start on a node that has the template already and one that has to fetch it are different kinds.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, How, bool], _Estimate] = {}
        self._all: _Estimate | None = None
        """Of whatever was started: what one that was never started is taken to cost."""

    def expect_s(self, template: str, how: How, *, held: bool) -> float:
        """CPU seconds to set aside. Taking over a warm pod costs nothing."""
        if how is How.WARM:
            return 0.0
        known = self._known.get((template, how, held)) or self._all
        return GUESS_S if known is None else known.mean + SPREAD * known.deviation

    def learn(self, template: str, how: How, cpu_s: float, *, held: bool) -> None:
        """A start has cost `cpu_s`."""
        key = (template, how, held)
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
