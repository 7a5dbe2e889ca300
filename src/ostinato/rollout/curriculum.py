"""The order in which practice takes its problems: as they come, or late in training harder kinds more often.

The stratum of a problem is its kind, which is known before it is shown. How hard a stratum is follows from
the sessions trained so far: their turns and thinking tokens, each against the mean of all strata. Late in
training a problem of an easy stratum is passed over with a probability; those that were passed over come when
there are no others. No problem is drawn twice: the stream has each once, and the ledger refuses what any
stage has shown.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from random import Random
from statistics import fmean

from ostinato.store.ledger.slots import KindEffort
from ostinato.tasks.source import Problem, SourceError

LATE = 0.5
"""The share of the training after which hard strata are preferred, more and more up to the end."""
FAR = 20_000
"""Problems of the stream that are looked through for those that a run before this process has planned."""


class Curriculum:
    """Draws problems. At the end of training a stratum of twice the mean effort weighs 1 + `harder`.

    `progress` returns how much of the training is done, from 0 to 1, and `efforts` the effort by stratum.
    `seed` and the problem's key decide whether it is passed over, so that a restart decides likewise.
    """

    def __init__(
        self,
        problems: Iterator[Problem],
        *,
        harder: float,
        seed: int,
        progress: Callable[[], float],
        efforts: Callable[[], Mapping[str, KindEffort]],
    ) -> None:
        self._problems = problems
        self._passed: deque[Problem] = deque(maxlen=FAR)
        self._end: SourceError | None = None
        self._harder = harder
        self._seed = seed
        self._progress = progress
        self._efforts = efforts

    def find(self, keys: Collection[str]) -> dict[str, Problem]:
        """Return the problems of these keys, which were planned before, and go on behind the last of them.

        They are among those passed over here, or further on. Those that the stream lacks are left out.
        """
        wanted = set(keys)
        found = {known.key: known for known in self._passed if known.key in wanted}
        for known in found.values():
            self._passed.remove(known)
        for _ in range(FAR if wanted else 0):
            if len(found) == len(wanted) or (problem := self._next()) is None:
                break
            if problem.key in wanted:
                found[problem.key] = problem
            else:
                self._passed.append(problem)
        return found

    def draw(self) -> Problem | None:
        """Return the next problem; None when there is no more. Raises the SourceError of a stream that has
        ended with one.
        """
        weights = self._weights()
        heaviest = max(weights.values(), default=1.0)
        while (problem := self._next()) is not None:
            weight = weights.get(problem.kind, 1.0)
            if Random(f"{self._seed}/{problem.key}").random() * heaviest < weight:
                return problem
            self._passed.append(problem)
        if not self._passed and self._end is not None:
            raise self._end
        return self._passed.popleft() if self._passed else None

    def _next(self) -> Problem | None:
        try:
            return next(self._problems, None)
        except SourceError as error:
            self._end = error
            return None

    def _weights(self) -> dict[str, float]:
        late = (self._progress() - LATE) / (1.0 - LATE)
        if self._harder == 0.0 or late <= 0.0:
            return {}
        above = {kind: max(0.0, effort - 1.0) for kind, effort in hardness(self._efforts()).items()}
        return {kind: 1.0 + late * self._harder * more for kind, more in above.items()}


def hardness(efforts: Mapping[str, KindEffort]) -> dict[str, float]:
    """Return each stratum's effort against the mean of all strata: half its turns, half its thinking tokens.

    Where nobody thinks, turns alone count.
    """
    turns = fmean(each.turns for each in efforts.values()) if efforts else 0.0
    thinking = fmean(each.thinking for each in efforts.values()) if efforts else 0.0
    if turns == 0:
        return {}
    if thinking == 0:
        return {kind: each.turns / turns for kind, each in efforts.items()}
    return {kind: (each.turns / turns + each.thinking / thinking) / 2 for kind, each in efforts.items()}
