"""A short week through the shipped cycle: its report, its kills, and what stays hidden.

Covers demo/week/base.py, demo/week/words.py, demo/week/start.py, demo/week/policy.py, demo/week/town.py,
demo/week/shop.py, demo/week/judge.py, demo/week/report.py, demo/week/clock.py and demo/week/people.py.
"""

import asyncio
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ostinato.demo.week import people as people_module
from ostinato.demo.week.clock import run_virtually
from ostinato.demo.week.people import Malice, People, population
from ostinato.demo.week.report import draw, report_of
from ostinato.demo.week.week import BEGAN, WeekPlan, open_policies, run_week
from ostinato.demo.week.words import ACTS, STRATA, TEXTS
from ostinato.loop.run import START, Run
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Ledger, Store
from ostinato.store.sql.database import Database
from ostinato.train.batch import ScoredRow

SHORT = WeekPlan(
    cycles=1,
    developers=40,
    adversaries=0.1,
    overrides=(
        "live.sessions=40",
        "live.ab_sessions=80",
        "live.canary_sessions=40",
        "live.learning_rate=0.02",
        "live.gate_margin=0.9",
        "bench.passes=1",
    ),
)
LEDGER = {
    "prompts": "SELECT prompt, stage, phase FROM prompts WHERE stage = 'live' ORDER BY 1",
    "states": "SELECT turn_id, state FROM states WHERE turn_id NOT LIKE 'bench-%' ORDER BY 1",
    "verdicts": "SELECT id, version, decision, reason FROM verdicts ORDER BY id",
    "versions": "SELECT version, parent FROM versions ORDER BY 1",
    "trainings": "SELECT version, prompt FROM trainings ORDER BY 1, 2",
    "releases": "SELECT experiment, stage, step, share FROM releases ORDER BY 1, at",
    "signals": "SELECT id, kind, observed_at FROM signals WHERE id LIKE 'dev-%' ORDER BY 1",
    "rewards": "SELECT DISTINCT session_id, parts FROM rewards ORDER BY 1, 2",
}


class KilledError(BaseException):
    """Stands for the end of the process."""


def ledger(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that was decided and accounted, without the names that are drawn anew."""
    connection = sqlite3.connect(directory / "store.db")
    found = {name: connection.execute(query).fetchall() for name, query in LEDGER.items()}
    connection.close()
    return found


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp("week")
    return directory, run_week(directory, SHORT)


def test_a_week_ends_in_a_report_with_what_people_think_beside_the_reward(week: tuple[Path, Any]) -> None:
    directory, found = week
    report = report_of(found, open_policies(Run(directory=directory)))
    (row,) = report["cycles"]
    assert row["mature"] > 0 and row["sessions"] >= row["mature"] and 0 < row["satisfaction"] < 1
    gained = report["hidden_satisfaction_gained"]
    assert gained["low"] <= gained["estimate"] <= gained["high"]
    draw(report, directory / "week.svg")
    assert (directory / "week.svg").read_text().startswith("<?xml")


def test_it_goes_through_the_shipped_ledger_and_gate(week: tuple[Path, Any]) -> None:
    directory, _ = week
    store = Store.open(directory / "store.db")
    assert Ledger(store).unaccounted() >= 0 and Ledger(store).trained_twice() == 0
    assert {verdict.id for verdict in store.verdicts()} >= {"gate-of-4"}
    assert max(row.version for row in store.versions()) >= 4
    store.close()


def test_a_finished_week_is_not_done_again(week: tuple[Path, Any]) -> None:
    directory, found = week
    before = ledger(directory)
    again = run_week(directory, SHORT)
    assert ledger(directory) == before and again.cycles == found.cycles
    assert [s for s in again.served if s.at <= found.served[-1].at] == sorted(
        found.served, key=lambda s: s.at
    )


def test_nothing_that_learns_or_decides_can_tell_how_satisfied_people_are(
    week: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world in which everybody is content leaves the same record, to the last reward and verdict."""
    monkeypatch.setattr(people_module, "_satisfaction", lambda *_: 1.0)
    other = run_week(tmp_path, SHORT)
    assert all(served.satisfaction == 1.0 for served in other.served)
    assert ledger(tmp_path) == ledger(week[0])


class Writes:
    """Counts the transactions of the record; the one of number `dies_at` does not happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dies_at: int = 0) -> None:
        self.count, write, recording = 0, Database.write, Database.recording

        def counted(real: Callable[[Database], Any]) -> Callable[[Database], Any]:
            def begin(database: Database) -> Any:
                self.count += 1
                if self.count == dies_at:
                    raise KilledError
                return real(database)

            return begin

        monkeypatch.setattr(Database, "write", counted(write))
        monkeypatch.setattr(Database, "recording", counted(recording))


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97, 0.995])
def test_a_kill_before_any_write_changes_nothing(week: tuple[Path, Any], tmp_path: Path, part: float) -> None:
    """A transaction of the process does not happen, and the process with it; the next one goes on."""
    with pytest.MonkeyPatch.context() as patch:
        whole = Writes(patch)
        run_week(tmp_path / "twin", SHORT)
    with pytest.MonkeyPatch.context() as patch:
        Writes(patch, dies_at=round(part * whole.count))
        with pytest.raises(KilledError):
            run_week(tmp_path / "killed", SHORT)
    run_week(tmp_path / "killed", SHORT)
    mine, twins = ledger(tmp_path / "killed"), ledger(week[0])
    assert twins["releases"], "it comes to a release"
    assert {name: mine[name] == twins[name] for name in LEDGER} == dict.fromkeys(LEDGER, True)


def test_what_is_recorded_beside_a_token_is_what_the_trainer_computes(week: tuple[Path, Any]) -> None:
    from ostinato.model.checkpoint import load
    from ostinato.sync import Subscriber
    from ostinato.train.local import DecoderModel

    directory, _ = week
    run = Run(directory=directory)
    policies = open_policies(run)
    words, version = policies.words, 4
    model = DecoderModel(load(run.checkpoint(START))[0], directory / "scorer")
    model.load(Subscriber(run.open_objects()).fetch(version))
    pairs = [(view, words.token_of[act]) for (turn, *_), view in words.views.items() for act in ACTS[turn]]
    rows = [ScoredRow(ids=pair, counted=(False, True)) for pair in pairs]
    scores = [float(each) for each in model.logprobs(rows)]
    cumulated = policies.of(version).cumulated
    ours = [math.log(cumulated[view][token] - cumulated[view][token - 1]) for view, token in pairs]
    assert ours == pytest.approx(scores, abs=1e-4)


def test_acts_and_views_are_single_tokens_that_read_as_the_harness_writes(week: tuple[Path, Any]) -> None:
    tokenizer = Tokenizer.load(Run(directory=week[0]).checkpoint(START))
    assert all(len(tokenizer.encode(text)) == 1 for text in TEXTS.values())
    assert [tokenizer.decode(tokenizer.encode(text)) for text in TEXTS.values()] == list(TEXTS.values())


def test_a_virtual_hour_takes_no_time_and_threads_run_in_place() -> None:
    async def main(now: Callable[[], float]) -> tuple[float, int]:
        await asyncio.sleep(3600.0)
        return now(), await asyncio.to_thread(lambda: 7)

    at, answer = run_virtually(BEGAN, main)
    assert at == pytest.approx(BEGAN + 3600.0, abs=1e-3) and answer == 7


def test_people_differ_and_a_share_of_them_lies() -> None:
    people = population(40, seed=1, adversaries=0.1)
    assert [person.malice for person in people[-4:]].count(None) == 0
    assert {person.malice for person in people} == {None, *Malice}
    assert len({person.expertise for person in people}) == 40
    assert population(40, seed=1, adversaries=0.1) == people
    crowd = People(40, 1, 0.1)
    asked = {crowd.request(user, number).stratum for user in crowd.users for number in range(10)}
    assert asked == set(STRATA) and sum(map(crowd.honest, crowd.users)) == 36
