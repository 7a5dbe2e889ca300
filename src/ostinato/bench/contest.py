"""A run of a suite: every (side, task, pass) is one row in the store, so a killed run goes on where it was.

::

    begin (session, attempt) ─► episode ─► void? again : axes ─► finish, once
"""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from ostinato.bench.axes import PassResult, result
from ostinato.bench.judge import QualityJudge, judged
from ostinato.bench.run import RETRIES, BenchError, all_of
from ostinato.bench.suite import BenchSuite, SuiteError
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.episode import CardUser, Episode, EpisodeRunner
from ostinato.rewards.judge_client import NoVerdictError
from ostinato.store import Ledger, Store
from ostinato.store.passes import Passes, PassKey
from ostinato.types import Source, State, Task, new_id

Results = dict[tuple[str, int], PassResult]
"""(task, number of the pass) -> its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: a name that stands for exactly this model under this harness, and its runner.

    >>> Side(name="version 3 of 9f, harness 4c", runner=runner).name                 # doctest: +SKIP
    'version 3 of 9f, harness 4c'
    """

    name: str
    runner: EpisodeRunner


def settings_hash(config: HarnessConfig, harness: str) -> str:
    """Return a short hash of all limits of a session, and of the prompt and tools that the model is shown."""
    text = json.dumps([asdict(config), harness], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Contest:
    """The passes of any number of sides over one suite.

    A `judge` compares each solved pass with what a person kept. A pass of which it gives no verdict lacks
    those measures, and `unjudged` counts the reasons. Raises SuiteError, with both hashes, when sides were
    run on this suite while it had another hash.
    """

    def __init__(
        self,
        store: Store,
        suite: BenchSuite,
        *,
        passes: int,
        slots: int = 8,
        judge: QualityJudge | None = None,
    ) -> None:
        self._store = store
        self._rows = Passes(store.database)
        self._suite = suite
        self._passes = passes
        self._slots = asyncio.Semaphore(slots)
        self._judge = judge
        self.unjudged: Counter[str] = Counter()
        check_hash(self._rows, suite)

    async def run(self, side: Side, on_done: Callable[[PassResult], None] = lambda _: None) -> Results:
        """Run the passes that are missing, and return all of them.

        Raises BenchError, after everything else was run, when a pass stayed void: it has no result, and the
        next run tries it again.
        """
        done = self.results(side.name)
        for each in done.values():
            on_done(each)
        missing = [
            (task, number)
            for number in range(self._passes)
            for task in self._suite.tasks
            if (task.id, number) not in done
        ]
        voids = await all_of(self._pass(side, task, number, on_done) for task, number in missing)
        if reasons := [why for why in voids if why is not None]:
            raise BenchError(
                f"{side.name}: {len(reasons)} of {len(missing)} passes stayed void after {RETRIES} "
                f"retries and have no result; the same command tries them again. The first: {reasons[0]}"
            )
        return self.results(side.name)

    def results(self, side: str) -> Results:
        """Return the results that this side has, of the passes asked for."""
        rows = self._rows.results(self._suite.label, self._suite.hash, side)
        return {key: PassResult.read(row) for key, row in rows.items() if key[1] < self._passes}

    async def _pass(
        self, side: Side, task: Task, number: int, on_done: Callable[[PassResult], None]
    ) -> str | None:
        """Run one pass and record it; return the reason when it stayed void."""
        key = PassKey(
            suite=self._suite.label, hash=self._suite.hash, side=side.name, task=task.id, number=number
        )
        async with self._slots:
            why = None
            for _ in range(1 + RETRIES):
                session, started = new_id(), time.monotonic()
                cut_off = self._rows.begin(key, session)
                if cut_off is not None:
                    Ledger(self._store).account_sessions([cut_off], State.VOID)
                episode = await side.runner.run(task, CardUser(task), source=Source.BENCH, session_id=session)
                if episode.void is None:
                    scored = await asyncio.to_thread(result, episode, time.monotonic() - started)
                    scored = await self._judged(episode, scored)
                    self._finish(key, episode, scored)
                    on_done(scored)
                    return None
                why = f"task {task.id}: {episode.void}"
            return why

    async def _judged(self, episode: Episode, scored: PassResult) -> PassResult:
        """Add the judge's measures; one that is not solved has no quality to compare."""
        if self._judge is None or not scored.solved:
            return scored
        try:
            found = await judged(self._judge, episode.task, episode.changes)
        except NoVerdictError as error:
            self.unjudged[str(error)] += 1
            return scored
        quality = {**scored.measures.get("quality", {}), **found}
        return replace(scored, measures={**scored.measures, "quality": quality})

    def _finish(self, key: PassKey, episode: Episode, scored: PassResult) -> None:
        """Record the facts of the session, where the gateway recorded it, then the result of the pass."""
        session = episode.session_id
        if self._store.session(session) is not None:
            self._store.record((), episode.signals())
        mine = self._rows.finish(key, session, scored.as_json())
        Ledger(self._store).account_sessions([session], State.MEASURED if mine else State.VOID)


def check_hash(rows: Passes, suite: BenchSuite) -> None:
    """Raise SuiteError when the store holds passes on this suite under another hash."""
    others = {hash: sides for hash, sides in rows.hashes(suite.label).items() if hash != suite.hash}
    for hash, sides in sorted(others.items()):
        raise SuiteError(
            f"{min(sides)} was measured on {suite.label} with hash {hash}, and the suite now has hash "
            f"{suite.hash}: they cannot be compared. Put the tasks back, or seal the suite as another version"
        )
