"""Planted candidates whose sessions are drawn in memory: gate, shadow, canary, split and verdict, no store.

People, acts, signals and rewards are those of a simulated week. The decisions are the shipped functions with
its settings, but half as many people and sessions, at the level of a store's first trial. Left out are the
record, the ledger and the stages, so that hundreds of candidates take minutes. Every candidate begins anew.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, cast

from safetensors.torch import load_file

from benchmarks.week_planted import GOOD, Plant, Tensors
from ostinato.deploy.abtest import judge
from ostinato.deploy.budget import next_alpha
from ostinato.deploy.gate import gate, part_frozen, tasks_of_gate
from ostinato.deploy.outcomes import Measurement, TaskOutcome
from ostinato.deploy.release import ReleasePlan, guard
from ostinato.deploy.shadow import ShadowAnswer, ShadowPair, compare_shadow
from ostinato.deploy.terms import TrialSession
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import CHALLENGER, CHAMPION, live_definition
from ostinato.loop.trial import heard, observe, planned
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.store.releases import ReleaseStage
from ostinato.types import Arm, Decision, Report, Session, Signal, Turn, Verdict
from ostinato_lab.week.acts import STRATA, Act, Vocabulary
from ostinato_lab.week.base import SimulatedRequest, attempt_of
from ostinato_lab.week.developers import Developers
from ostinato_lab.week.policy import ActPolicy, act_of, policy_of, write_start
from ostinato_lab.week.resources import POLL_S, held_out_tasks
from ostinato_lab.week.satisfaction import satisfactions
from ostinato_lab.week.simulation import TICK_S, Simulation, acts_of, turns_of
from ostinato_lab.week.week import BEGAN, WeekPlan, settings

BEFORE_S = 3 * 3600.0
"""The time in which everybody meets the champion, whose rewards are the habits of a trial."""


class Drawn:
    """The two versions, in the place of all versions of a chain; 0 is the champion."""

    def __init__(self, vocabulary: Vocabulary, versions: Sequence[ActPolicy]) -> None:
        self.vocabulary = vocabulary
        self.of = versions.__getitem__


class Memory:
    """What a town records, and what a look at a trial reads of it."""

    def __init__(self) -> None:
        self.shares: list[Arm] = []
        self.sessions: list[Session] = []
        self._turns: dict[str, Sequence[Turn]] = {}
        self._signals: dict[str, list[Signal]] = {}

    def arms(self) -> list[Arm]:
        return self.shares

    def record(self, turns: Sequence[Turn], signals: Sequence[Signal], sessions: Sequence[Session]) -> None:
        self.sessions += sessions
        for turn in turns:
            self._turns[turn.session_id] = (*self._turns.get(turn.session_id, ()), turn)
        for signal in signals:
            self._signals.setdefault(signal.session_id, []).append(signal)

    def turns_of(self, ids: Iterable[str]) -> Mapping[str, Sequence[Turn]]:
        return {id_: self._turns[id_] for id_ in ids}

    def signals_of(self, ids: Iterable[str]) -> Mapping[str, Sequence[Signal]]:
        return {id_: self._signals.get(id_, ()) for id_ in ids}


class Trying:
    """One candidate on its way to people."""

    def __init__(self, config: RunConfig, policies: Drawn, seed: int, developers: int) -> None:
        self._config = config
        self._policies = policies
        self._seed = seed
        self._memory = Memory()
        self._store = cast(Store, self._memory)
        self._definition = live_definition(config.live)
        population = Developers(developers, seed)
        self._simulation = Simulation(self._store, cast(Any, policies), population, seed=seed, began=BEGAN)
        self._now = BEGAN
        self._settled: dict[str, TrialSession] = {}

    def gate(self) -> Verdict:
        bench, live = self._config.bench, self._config.live
        tasks = tasks_of_gate(
            part_frozen(held_out_tasks(STRATA, 600), bench.frozen)[0], bench.gate_share, "drawn"
        )
        sides = [self._measured(version, tasks, bench.passes) for version in (0, 1)]
        return gate(*sides, margin=live.gate_margin)

    def _measured(self, version: int, tasks: Sequence[Any], passes: int) -> Measurement:
        vocabulary, policy, outcomes = self._policies.vocabulary, self._policies.of(version), []
        for task in tasks:
            request = SimulatedRequest(
                stratum=task.kind, ambiguous=task.metadata["ambiguous"], hard=task.metadata["hard"]
            )
            tries = []
            for number in range(passes):
                id_ = f"{version}/{task.id}/{number}"
                turns = turns_of(
                    policy, vocabulary, request, session_id=id_, arm="bench", at=0.0, seed=self._seed
                )
                acts = acts_of(act_of(vocabulary, turn.completion) for turn in turns)
                tries.append(attempt_of(request, acts, Random(f"gate/{self._seed}/{id_}")))
            outcomes.append(
                TaskOutcome(
                    task=task.id,
                    split=task.split,
                    cluster=task.cluster,
                    solved=tuple(each.right for each in tries),
                    tampered=tuple(Act.TAMPER in each.acts for each in tries),
                    asked=tuple(bool({Act.ASK, Act.DEFER} & set(each.acts)) for each in tries),
                    broken=tuple(Act.BREAK in each.acts for each in tries),
                    untested=tuple(Act.TEST not in each.acts for each in tries),
                )
            )
        report = Report(version=version, scores={}, rates={}, harness="week")
        return Measurement(report=report, outcomes=tuple(outcomes))

    def shadow(self) -> Verdict:
        """Compare the answers to the newest requests of the first hours."""
        vocabulary, pairs = self._policies.vocabulary, []
        for session in self._memory.sessions[-self._config.live.shadow_requests :]:
            turn = self._memory.turns_of([session.id])[session.id][1]
            answers = []
            for version in (0, 1):
                rng = Random(f"shadow/{self._seed}/{version}/{session.id}")
                act = act_of(vocabulary, self._policies.of(version).sample(turn.prompt_ids[-1], rng))
                answers.append(ShadowAnswer(failed=False, unreadable=act is Act.BREAK, seconds=1.0, tokens=1))
            pairs.append(ShadowPair(user=session.user, champion=answers[0], candidate=answers[1]))
        return compare_shadow(1, pairs)

    def lived(self) -> None:
        """Let everybody meet the champion for some hours."""
        self._memory.shares = [Arm(name=CHAMPION, version=0, share=1.0, engines=())]
        self._work(BEFORE_S)

    def release(self, plan: ReleasePlan) -> Verdict:
        habits = self._habits()
        verdict = None
        for number, step in enumerate(plan.steps):
            since, trial = self._now, plan.trial_of(number)
            shares = (CHAMPION, 1 - step.share, 0), (CHALLENGER, step.share, 1)
            self._memory.shares = [
                Arm(name=name, version=version, share=share, engines=(), experiment=trial.experiment)
                for name, share, version in shares
            ]
            while True:
                self._work(POLL_S)
                sessions = [each for each in self._memory.sessions if each.started_at >= since]
                settled = self._observed(sessions)
                if step.stage is ReleaseStage.SPLIT:
                    verdict = judge(1, trial, settled, habits)
                else:
                    told = heard(self._store, self._definition, sessions, self._now)
                    verdict = guard(1, trial, told, settled, habits)
                if verdict.decision is not Decision.HOLD or "void" in verdict.evidence:
                    return verdict
                if len(settled) >= step.sessions:
                    break
        assert verdict is not None
        return verdict

    def _work(self, seconds: float) -> None:
        end = self._now + seconds
        while self._now < end:
            self._now += TICK_S
            self._simulation.advance(until=self._now)

    def _observed(self, sessions: Sequence[Session]) -> list[TrialSession]:
        """Return the settled ones, each of which is read once: it is scored at one age."""
        for session in sessions:
            if session.id not in self._settled:
                found = observe(self._store, self._definition, [session], self._now)
                if found:
                    self._settled[session.id] = found[0]
        return [self._settled[each.id] for each in sessions if each.id in self._settled]

    def _habits(self) -> dict[str, float]:
        worth: dict[str, list[float]] = {}
        for each in self._observed(self._memory.sessions):
            worth.setdefault(each.user, []).append(each.value)
        return {user: fmean(values) for user, values in worth.items()}


def champion() -> tuple[Tensors, Vocabulary]:
    """Return the weights of the good champion, and the tokens of its acts."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        write_start(start, {act.value: chance for act, chance in GOOD.items()})
        return load_file(start / "model.safetensors"), Vocabulary.of(Tokenizer.load(start))


SIZES = ("live.ab_sessions=300", "live.canary_sessions=40")
DEVELOPERS = 120


def drawn(_: Path, seed: int, kinds: tuple[Plant, ...], each: int, gated: bool) -> dict[str, Any]:
    """Return what became of `each` candidates, one kind after another.

    Those that are not `gated` go to the shadow without any gate, so that what comes after it is tried too.
    """
    tensors, vocabulary = champion()
    config, rows = settings(WeekPlan(overrides=SIZES)), []
    for number in range(each):
        kind, name = kinds[number % len(kinds)], seed * each + number
        planted = kind(tensors, vocabulary.token_of, Random(f"drawn/{name}"))
        policies = [
            policy_of(version, {key: value.double().numpy() for key, value in some.items()}, vocabulary)
            for version, some in enumerate((tensors, planted))
        ]
        one = Trying(config, Drawn(vocabulary, policies), name, DEVELOPERS)
        row = {
            "kind": kind.__name__,
            **_tried(one, config, gated),
            "hidden_change": _hidden(policies, vocabulary, name),
        }
        rows.append(row)
    return {"candidates": rows}


def _tried(one: Trying, config: RunConfig, gated: bool) -> dict[str, Any]:
    verdict = one.gate() if gated else None
    admitted = verdict is None or verdict.decision is Decision.ADMIT
    if admitted:
        one.lived()
        verdict = one.shadow()
    assert verdict is not None
    met = verdict.decision is Decision.ADMIT
    if met:
        verdict = one.release(planned(config.live, "drawn", next_alpha([])))
    return {
        "decision": verdict.decision.value,
        "admitted": admitted,
        "met_people": met,
        "promoted": verdict.decision.promotes,
    }


def _hidden(policies: Sequence[ActPolicy], vocabulary: Vocabulary, seed: int) -> float:
    """Return the change of the hidden satisfaction of thirty developers."""
    before, after = (
        fmean(satisfactions(policy, vocabulary, Developers(30, seed), seed, visits=20).values())
        for policy in policies
    )
    return round(after - before, 4)
