"""Covers bench/contest.py and bench/endpoint.py: runs of a suite that survive a kill and void passes."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fuzz.endpoint import Message, Model, asked_for, endpoint, says, solves

from ostinato.bench.contest import Contest, Side
from ostinato.bench.endpoint import Endpoint
from ostinato.bench.judge import RUBRIC, Opinion
from ostinato.bench.run import RETRIES, BenchError
from ostinato.bench.suite import BenchSuite, SuiteError, seal
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.episode import EpisodeRunner
from ostinato.rewards.judge_client import NoVerdictError
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store
from ostinato.store.passes import Passes
from ostinato.tasks.pebble import Pebble, generate, provide

CONFIG = HarnessConfig(max_context=20_000, max_tokens=400)


@pytest.fixture
def pebbles(tmp_path: Path) -> dict[str, Pebble]:
    """Return three pebbles by instruction, written as a suite into `tmp_path/suite`."""
    made = [generate("fix", "seeds", seed) for seed in range(3)]
    for pebble in made:
        provide(pebble, tmp_path / "suite" / pebble.id)
    return {pebble.instruction: pebble for pebble in made}


@pytest.fixture
def suite(pebbles: dict[str, Pebble], tmp_path: Path) -> BenchSuite:
    return seal(tmp_path / "suite", "small")


@asynccontextmanager
async def side(model: Model, name: str = "a") -> AsyncIterator[Side]:
    backend = ProcessBackend()
    async with endpoint(model) as url, Endpoint(url, "", model="m", patience_s=0.0) as client:
        yield Side(name=name, runner=EpisodeRunner(client, backend, Verifier(backend), CONFIG))
    await backend.aclose()


def solving(pebbles: dict[str, Pebble], sessions: list[str]) -> Model:
    """Return a model that solves everything, and notes the sessions that it sees."""

    def model(session: str, messages: object) -> Message:
        sessions.append(session) if session not in sessions else None
        return solves(asked_for(pebbles, messages), messages)  # type: ignore[arg-type]

    return model


async def test_every_pass_is_one_row_and_none_is_run_again(
    pebbles: dict[str, Pebble], suite: BenchSuite, tmp_path: Path
) -> None:
    store, sessions = Store.open(tmp_path / "bench.db"), list[str]()
    async with side(solving(pebbles, sessions)) as one:
        found = await Contest(store, suite, passes=2).run(one)
        assert len(found) == 6 and all(each.solved for each in found.values())
        measures = next(iter(found.values())).measures
        assert measures["quality"]["files"] == 1 and measures["efficiency"]["tokens_out"] == 10
        assert "tokens_reasoning" not in measures["efficiency"]  # not counted, so missing
        assert await Contest(store, suite, passes=2).run(one) == found
    assert len(sessions) == 6
    assert Passes(store.database).attempts("small 1", suite.hash, "a") == 6


async def test_a_judge_adds_measures_and_its_silence_leaves_them_out(
    pebbles: dict[str, Pebble], suite: BenchSuite, tmp_path: Path
) -> None:
    class Judge:
        name = "judge"

        async def opinion(self, request: str, first: str, second: str) -> Opinion:
            if request != next(iter(pebbles)):
                raise NoVerdictError("the judge is away")
            return dict.fromkeys(RUBRIC, (1.0, 0.0))

    for task in suite.tasks:
        (task.directory / "solution" / "solution.patch").write_text("+x\n")
    async with side(solving(pebbles, [])) as one:
        contest = Contest(Store.open(tmp_path / "bench.db"), suite, passes=1, judge=Judge())
        found = [each.measures["quality"] for each in (await contest.run(one)).values()]
    assert sorted(each.get("scope by judge", -1.0) for each in found) == [-1.0, -1.0, 0.75]
    assert contest.unjudged == {"the judge is away": 2}


async def test_a_void_pass_is_tried_again_and_never_counts(
    pebbles: dict[str, Pebble], suite: BenchSuite, tmp_path: Path
) -> None:
    store, well = Store.open(tmp_path / "bench.db"), False

    def model(session: str, messages: object) -> Message | None:
        pebble = asked_for(pebbles, messages)  # type: ignore[arg-type]
        failing = pebble is next(iter(pebbles.values())) and not well
        return None if failing else solves(pebble, messages)  # type: ignore[arg-type]

    async with side(model) as one:
        contest = Contest(store, suite, passes=1)
        with pytest.raises(BenchError, match=f"1 of 3 passes stayed void after {RETRIES} retries"):
            await contest.run(one)
        assert len(contest.results("a")) == 2
        well = True
        assert len(await contest.run(one)) == 3
    assert Passes(store.database).attempts("small 1", suite.hash, "a") == 2 + 1 + RETRIES + 1


async def test_rubbish_is_void(pebbles: dict[str, Pebble], suite: BenchSuite, tmp_path: Path) -> None:
    async with side(lambda session, messages: {"content": "no role", "tool_calls": 7}) as one:
        with pytest.raises(BenchError, match="3 of 3 passes stayed void"):
            await Contest(Store.open(tmp_path / "bench.db"), suite, passes=1).run(one)


async def test_a_suite_that_changed_between_two_sides_is_refused(
    pebbles: dict[str, Pebble], suite: BenchSuite, tmp_path: Path
) -> None:
    store = Store.open(tmp_path / "bench.db")
    async with side(lambda session, messages: says("no")) as one:
        await Contest(store, suite, passes=1).run(one)
    (tmp_path / "suite" / "suite.json").unlink()
    (suite.tasks[0].directory / "instruction.md").write_text("something else")
    changed = seal(tmp_path / "suite", "small")
    with pytest.raises(SuiteError, match=f"hash {suite.hash}, and the suite now has hash {changed.hash}"):
        Contest(store, changed, passes=1)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ostinato.bench.contest import Contest, Side
from ostinato.bench.endpoint import Endpoint
from ostinato.bench.judge import RUBRIC, Opinion
from ostinato.bench.suite import open_suite
from ostinato.harness.agent import HarnessConfig
from ostinato.harness.episode import EpisodeRunner
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.store import Store

folder, url, left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def done(_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    backend = ProcessBackend()
    config = HarnessConfig(max_context=20_000, max_tokens=400)
    async with Endpoint(url, "", model="m") as client:
        side = Side(name="a", runner=EpisodeRunner(client, backend, Verifier(backend), config))
        contest = Contest(Store.open(folder / "bench.db"), open_suite(folder / "suite"), passes=2, slots=2)
        await contest.run(side, done)

asyncio.run(main())
"""


async def test_a_killed_run_goes_on_and_counts_nothing_twice(
    pebbles: dict[str, Pebble], suite: BenchSuite, tmp_path: Path
) -> None:
    sessions: list[str] = []
    async with endpoint(solving(pebbles, sessions)) as url:
        for left in (2, 5):
            command = [sys.executable, "-c", KILLED, str(tmp_path), url, str(left)]
            done = await asyncio.to_thread(subprocess.run, command, check=False)
            assert done.returncode == -9
    contest = Contest(Store.open(tmp_path / "bench.db"), suite, passes=2)
    assert 4 <= len(contest.results("a")) <= 5
    async with side(solving(pebbles, sessions)) as one:
        assert len(await contest.run(one)) == 6
