"""A short week through the shipped cycle: its report, its kills, and what stays hidden.

Covers every module of ostinato_lab/week, and loop/stages/measure.py.
"""

import asyncio
import math
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz.cycle_kills import (
    LEDGER,
    SUPERSEDING_WEEK,
    TINY_WEEK,
    KilledError,
    counting,
    ledger,
    survive,
    twin_of,
)
from fuzz.cycle_kills import SMALL_WEEK as SHORT

from ostinato.deploy.gate import part_frozen, tasks_of_gate
from ostinato.loop.live_config import live_definition
from ostinato.loop.results import Champion, Measured, Published
from ostinato.loop.run import START, Run
from ostinato.loop.stages.learn import publish
from ostinato.loop.stages.measure import HeldOutTasks, measure
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Ledger, Store
from ostinato.train.batch import ScoredRow
from ostinato.types import SignalKind
from ostinato_lab.week import developers as developers_module
from ostinato_lab.week.acts import ACTS, STRATA, TEXTS, Act
from ostinato_lab.week.base import Attempt, SimulatedRequest, attempt_of
from ostinato_lab.week.clock import run_virtually
from ostinato_lab.week.developers import Developers, Malice, population
from ostinato_lab.week.independent import IndependentDevelopers, intent_of, result_of
from ostinato_lab.week.policy import write_start
from ostinato_lab.week.populations import HELD
from ostinato_lab.week.report import draw, report_of
from ostinato_lab.week.resources import WeekResources, held_out_tasks
from ostinato_lab.week.simulation import tick_of
from ostinato_lab.week.week import BEGAN, open_policies, run_week, settings


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp("week")
    return directory, run_week(directory, SHORT)


def test_a_week_ends_in_a_report_with_what_people_think_beside_the_reward(week: tuple[Path, Any]) -> None:
    directory, found = week
    report = report_of(found, open_policies(Run(directory=directory)))
    assert len(report["cycles"]) == SHORT.cycles and report["trials"]
    for row in report["cycles"]:
        assert row["mature"] > 0 and row["sessions"] >= row["mature"] and 0 < row["satisfaction"] < 1
        assert 0 < row["took"] <= report["most_hours_to_the_gate"] and row["age"] >= 1.0
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


def test_champion_and_candidate_do_the_tasks_of_this_gate_and_no_frozen_one(week: tuple[Path, Any]) -> None:
    run, tasks = Run(directory=week[0]), held_out_tasks(STRATA, SHORT.tasks)
    gates, frozen = part_frozen(tasks, 0.2)
    asked = [task.id for task in tasks_of_gate(gates, 0.5, "cycle-1")]
    for stage in ("cycle-1/champion", "cycle-1/gate"):
        measured = run.result(stage, Measured)
        assert measured is not None and [each.task for each in measured.measurement.outcomes] == asked
    assert 0 < len(asked) < len(gates) and not {task.id for task in frozen} & set(asked)


def test_a_promoted_version_is_compared_with_the_first_on_the_frozen_tasks(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    write_start(run.checkpoint(START))
    run.objects_path.mkdir(parents=True)
    tasks = held_out_tasks(STRATA, SHORT.tasks)

    async def main(now: Callable[[], float]) -> str:
        with closing(Store.open(run.store, now)) as store:
            resources = WeekResources(settings(SHORT), run, store, open_policies(run))
            await resources.stage("publish", Published, lambda: publish(resources))
            after = await resources.stage("after", Measured, lambda: measure(resources, 0, tasks, passes=1))
            held_out = HeldOutTasks(resources, tasks, Champion(version=0, measured=after))
            return await held_out.sum_of_promotions(0, promotions=1)

    said = run_virtually(BEGAN, main)
    first = run.result("hold-out-tasks", Measured)
    assert first is not None
    frozen = {task.id for task in part_frozen(tasks, 0.2)[1]}
    assert {each.task for each in first.measurement.outcomes} == frozen
    assert said.startswith("version 0 against the first: ") and f"({len(frozen)} frozen tasks)" in said


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
    monkeypatch.setattr(developers_module, "_satisfaction", lambda *_: 1.0)
    other = run_week(tmp_path, SHORT)
    assert all(served.satisfaction == 1.0 for served in other.served)
    assert ledger(tmp_path) == ledger(week[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [0.5, 0.9, *(pytest.param(part, marks=pytest.mark.deep) for part in (0.1, 0.3, 0.7, 0.8, 0.97, 0.995))],
)
def test_a_kill_at_any_durable_step_changes_nothing(
    week: tuple[Path, Any], tmp_path: Path, part: float
) -> None:
    """A process ends before or after one of its steps; the next one goes on."""
    with counting() as whole:
        run_week(tmp_path / "twin", SHORT)
    with counting(dies_at=round(part * whole.count), late=part > 0.6), pytest.raises(KilledError):
        run_week(tmp_path / "killed", SHORT)
    run_week(tmp_path / "killed", SHORT)
    mine, twins = ledger(tmp_path / "killed"), ledger(week[0])
    assert twins["releases"], "it comes to a release"
    assert {name: mine[name] == twins[name] for name in LEDGER} == dict.fromkeys(LEDGER, True)


def test_what_is_dead_does_nothing_durable_any_more(tmp_path: Path) -> None:
    """Neither what a process would do on its way out, nor a step that has begun, is in the record."""
    with closing(Store.open(tmp_path / "store.db")) as store:
        keep = store.accounts.set_consent
        with counting(2) as steps:
            keep(user="ada", granted=True, by="test")
            for user in ("bob", "cy"):
                with pytest.raises(KilledError):
                    keep(user=user, granted=True, by="test")
        with counting(1, late=True), pytest.raises(KilledError):
            keep(user="dee", granted=True, by="test")
        agreed = store.accounts.consented([("", user) for user in ("ada", "bob", "cy", "dee")])
    assert steps.count == 3
    assert agreed == {("", "ada"): True, ("", "bob"): False, ("", "cy"): False, ("", "dee"): True}


def test_a_process_goes_on_from_the_tick_that_recorded_what_is_newest(tmp_path: Path) -> None:
    """A clock that went back would let the cycle look again at a moment when less was known."""
    assert [tick_of(BEGAN + at) for at in (0.0, 150.0, 150.1)] == [BEGAN + 150, BEGAN + 150, BEGAN + 450]
    with counting() as whole:
        run_week(tmp_path / "twin", SHORT)
    with counting(whole.stages["cycle-1/gate"], late=True), pytest.raises(KilledError):
        run_week(tmp_path / "killed", SHORT)
    run_week(tmp_path / "killed", SHORT)
    mine, twins = ledger(tmp_path / "killed"), ledger(tmp_path / "twin")
    assert {name: mine[name] == twins[name] for name in LEDGER} == dict.fromkeys(LEDGER, True)


@pytest.mark.slow
def test_kills_beside_a_trial_supersede_and_give_back_the_same(tmp_path: Path) -> None:
    """A longer trial goes on beside cycles; the candidate of the third makes way for the fourth's."""
    twin = twin_of(tmp_path / "twin", SUPERSEDING_WEEK)
    said = [detail for action, _, detail in twin.ledger["log"] if action == "superseded"]
    assert "version 8 is superseded: cycle-4 has a newer candidate" in said
    again = [prompt for _, prompt in twin.ledger["trainings"]]
    assert len(set(again)) < len(again), "what version 8 had learnt from"
    done = survive(tmp_path / "killed", twin, 3)
    assert done.kills > 5 and done.differs == ()


@pytest.mark.deep
def test_kill_after_kill_changes_nothing(tmp_path: Path) -> None:
    """A seeded part of the kills of `benchmarks.week --only fuzzed`, in each stage of a cycle.

    How many durable steps a process needs differs a little from run to run, so there are weeks to spare.
    """
    twin = twin_of(tmp_path / "twin", TINY_WEEK)
    assert [row[3] for row in twin.ledger["verdicts"]][-1].startswith("not shown to be better")
    done = [survive(tmp_path / "killed", twin, seed) for seed in range(8)]
    assert sum(each.kills for each in done) > 20 and [each.differs for each in done] == [()] * 8
    died_in = {stage for each in done for stage in each.died_in}
    assert died_in >= {"live", "collect", "refine", "gate", "release"}


def test_a_kill_between_a_stage_and_its_log_turns_no_clock_back(tmp_path: Path) -> None:
    """Each process begins at the newest row; the first stage ends later, when it has waited for windows."""
    twin = twin_of(tmp_path / "twin", TINY_WEEK)
    for name in ("counted", "killed"):
        shutil.copytree(twin.start, tmp_path / name)
    with counting() as steps:
        run_week(tmp_path / "counted", TINY_WEEK)
    with counting(steps.stages["cycle-1/live"], late=True), pytest.raises(KilledError):
        run_week(tmp_path / "killed", TINY_WEEK)
    run_week(tmp_path / "killed", TINY_WEEK)
    assert ledger(tmp_path / "killed") == twin.ledger


def test_the_second_population_judges_by_what_it_sees(week: tuple[Path, Any]) -> None:
    request = SimulatedRequest(stratum="fix", ambiguous=True, hard=0.5)
    wrong = Attempt(
        request=request,
        acts=(Act.RUSH, Act.PATCH, Act.CLAIM),
        right=False,
        looks_right=True,
        edited=True,
        seconds=(6.0, 45.0, 9.0),
    )
    right, plain = replace(wrong, right=True), replace(request, ambiguous=False)
    assert intent_of(request).wants_certain_edit and not intent_of(plain).wants_certain_edit
    assert "alpha" in result_of(right).sources["app.py"] and "beta" in result_of(wrong).sources["app.py"]
    assert result_of(wrong).tests_pass

    def kept(attempt: Attempt) -> float:
        population, kinds = IndependentDevelopers(100, 1), {SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED}
        found = [population.feedback(user, 0, attempt) for user in population.users]
        return sum(any(reaction.kind in kinds for reaction in each.reactions) for each in found) / len(found)

    seen, unseen = kept(wrong), kept(replace(wrong, request=plain))
    assert seen < 0.4 < unseen and kept(right) > 0.8, (
        "wrong work whose tests pass is taken where one reading is"
    )
    population = IndependentDevelopers(100, 1, adversaries=0.1)
    liars = [user for user in population.users if not population.honest(user)]
    assert len(liars) == 10
    turned = [population.feedback(user, 1, right).reactions[0].kind for user in liars]
    assert turned.count(SignalKind.EDIT_REVERTED) > 7
    worth = [
        IndependentDevelopers(100, 1).feedback("dev-000", 0, each).satisfaction for each in (right, wrong)
    ]
    assert worth[0] > 0.5 > worth[1]


def test_in_the_null_the_reactions_of_sessions_are_exchanged_and_nothing_else(tmp_path: Path) -> None:
    """Every session's reactions are shown once, by another one; no part prices the turns."""
    plan = replace(SHORT, shuffled=True)
    alone, mixed = replace(SHORT).people(), plan.people()
    request = SimulatedRequest(stratum="fix", ambiguous=False, hard=0.5)
    attempt = attempt_of(request, (Act.READ, Act.CAREFUL, Act.TEST), Random(1))
    names = [(user, number) for number in range(10) for user in alone.users]
    own = [alone.feedback(*name, attempt) for name in names]
    shown = [mixed.feedback(*name, attempt) for name in names]
    assert [v.satisfaction for v in own] == [v.satisfaction for v in shown]
    assert all(each.reactions == () for each in shown[:HELD])
    left = Counter(each.reactions for each in own)
    left.subtract(Counter(each.reactions for each in shown[HELD:]))
    assert sum(left.values()) == HELD and min(left.values()) >= 0
    assert sum(a.reactions == b.reactions for a, b in zip(own, shown, strict=True)) < len(names) / 4
    weights = {name: part.weight for name, part in live_definition(settings(plan).live).parts.items()}
    usual = {name: part.weight for name, part in live_definition(settings(SHORT).live).parts.items()}
    assert weights == usual | {"broken": 0.0, "effort": 0.0}


def test_what_is_recorded_beside_a_token_is_what_the_trainer_computes(week: tuple[Path, Any]) -> None:
    from ostinato.model.checkpoint import load
    from ostinato.sync import Subscriber
    from ostinato.train.local import DecoderModel

    directory, _ = week
    run = Run(directory=directory)
    policies = open_policies(run)
    vocabulary, version = policies.vocabulary, 4
    model = DecoderModel(load(run.checkpoint(START))[0], directory / "scorer")
    model.load(Subscriber(run.open_objects()).fetch(version))
    pairs = [
        (view, vocabulary.token_of[act])
        for (turn, *_), view in vocabulary.views.items()
        for act in ACTS[turn]
    ]
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
    developers = Developers(40, 1, 0.1)
    asked = {developers.request(user, number).stratum for user in developers.users for number in range(10)}
    assert asked == set(STRATA) and sum(map(developers.honest, developers.users)) == 36
