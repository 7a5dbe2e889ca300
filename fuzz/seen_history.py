"""A history to look at: steps of training, a trial under way, monitors, words of people, and a purge.

It is written into a store that `seen_store.fill` filled. As there, the figures are made up.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from fuzz.seen_session import call, live, result, user
from fuzz.seen_store import NOW
from ostinato.model.families import HermesRenderer
from ostinato.store import Ledger, Store
from ostinato.store.cycle_log import CycleAction, CycleEntry, log_cycle
from ostinato.store.ledger.phases import Stage
from ostinato.store.purge import purge
from ostinato.store.steps import add_step
from ostinato.types import (
    Arm,
    Checkpoint,
    Completion,
    Decision,
    Ending,
    FinishReason,
    Group,
    Percentiles,
    Reward,
    RewardPart,
    Sample,
    Session,
    Signal,
    SignalKind,
    Source,
    State,
    StepFigures,
    Turn,
    Verdict,
)

DAY_S = 86_400.0
FIRST, STEPS, GROUPS, EACH = 9, 16, 3, 4
"""The first version that training made, its steps, the groups of a step, the sessions of a group."""
Spoken = Sequence[tuple[list[int], list[int]]]
"""The prompt and the answer of each turn of a session."""
EXPERIMENT, USERS = "e3", 36
WEEK = {
    "cycles": [
        {"hours": 4.3, "reward": 0.31, "satisfaction": None, "decision": "hold: not shown to be better"},
        {"hours": 9.8, "reward": 0.38, "satisfaction": 0.35, "decision": "promote"},
        {"hours": 14.1, "reward": 0.47, "satisfaction": 0.46, "decision": "hold: not shown to be better"},
    ],
    "hidden_satisfaction_gained": {"estimate": 0.11, "low": 0.02, "high": 0.2},
}
"""The report of a simulated week, as far as the page of rewards reads it."""


def grow(store: Store, renderer: HermesRenderer, *, now: float = NOW) -> None:
    """Write the history into a filled store."""
    chance = random.Random(11)
    turns = _spoken(renderer)
    _train(store, turns, chance, now)
    _try(store, turns, chance, now)
    _log(store, now)
    _leave(store, turns, now)


def _spoken(renderer: HermesRenderer) -> list[tuple[list[int], list[int]]]:
    """Return the prompt and the answer of two turns, which all sessions of the history share."""
    asked = list(renderer.render([user("the area of a rectangle is wrong")], []))
    first = list(renderer.say(call("bash", command="pytest -q")))
    more = [*asked, *first, *renderer.extend(result("1 failed"))]
    second = list(renderer.say({"role": "assistant", "content": "The area was a sum. It is a product now."}))
    return [(asked, first), (more, second)]


def _turns(session: Session, spoken: Spoken, version: int, chance: random.Random) -> list[Turn]:
    return [
        Turn(
            session_id=session.id, index=number, segment=0, arm=session.arm, prompt_ids=tuple(prompt),
            completion=Completion(
                ids=tuple(ids), logprobs=tuple(-chance.expovariate(4.0) for _ in ids),
                versions=(version,) * len(ids), finish=FinishReason.STOP,
            ),
            started_at=session.started_at + 7.0 * number, latency_s=chance.uniform(0.4, 2.5),
        )
        for number, (prompt, ids) in enumerate(spoken)
    ]  # fmt: skip


def _train(store: Store, spoken: Spoken, chance: random.Random, now: float) -> None:
    ledger = Ledger(store)
    for step in range(STEPS):
        version, skill = FIRST + step, 0.15 + 0.6 * step / STEPS
        at = now - 5 * DAY_S + 1_800 * step
        batch = _groups(store, spoken, chance, version=version, skill=skill, at=at)
        for group in batch:
            ledger.offer(group)
        ledger.claim(version, GROUPS, 0)
        size = 1_400_000 if step % 8 == 7 else chance.randint(74_000, 131_000)
        ledger.commit(
            Checkpoint(
                version=version, parent=version - 1 if step else 7, digest=f"d{version}",
                kind="anchor" if step % 8 == 7 else "delta", bytes=size, created_at=at,
                batch=tuple(group.id for group in batch),
            )
        )  # fmt: skip
        wave = chance.uniform(-0.05, 0.05)
        rewards = [reward for group in batch for reward in group.rewards]
        add_step(
            store,
            StepFigures(
                version=version, gradient=1.4 * 0.95**step + abs(wave), loss=0.4 - 0.01 * step + wave,
                rows=GROUPS * EACH, sessions=GROUPS * EACH, tokens=4_200 + 60 * step, staleness=1 + step % 2,
                ratio=1.0 + wave / 5, cut=0.02 + abs(wave) / 4, effective=0.97 - abs(wave),
                mismatch=Percentiles(p50=2e-6 + abs(wave) / 1e4, p99=4e-3 + abs(wave) / 20, most=0.3),
                entropy=0.9 - 0.02 * step + wave, reward=fmean(rewards),
                best=fmean(max(group.rewards) for group in batch),
                seconds=6.0 + wave * 8, waited=3.5 + 20 * abs(wave),
            ),
        )  # fmt: skip


def _groups(
    store: Store, spoken: Spoken, chance: random.Random, *, version: int, skill: float, at: float
) -> list[Group]:
    """Record the sessions of one step, and return their groups."""
    groups, sessions, turns, signals, given = [], [], [], [], []
    for place in range(GROUPS):
        samples = []
        for number in range(EACH):
            session = Session(
                id=f"p{version}-{place}-{number}", source=Source.PRACTICE, user="practice", arm="practice",
                task_id=f"pebble-fix-{version}-{place}", harness="9f31c0de", consent=True,
                started_at=at + 60 * place + number, ending=Ending.FINISHED,
            )  # fmt: skip
            own = _turns(session, spoken, max(7, version - 1 - chance.randint(0, 2)), chance)
            solved = float(chance.random() < skill)
            id, kind = f"{session.id}-t", SignalKind.HIDDEN_TESTS
            signals.append(Signal(session_id=session.id, kind=kind, value=solved, observed_at=at, id=id))
            parts = (
                RewardPart(name="solved", value=solved, evidence=(id,)),
                RewardPart(name="effort", value=-chance.uniform(0.01, 0.09)),
                RewardPart(name="broken", value=-0.5 if chance.random() < 0.08 else 0.0),
            )
            given.append(Reward(session_id=session.id, definition="5be0c1a2d3f4", parts=parts))
            sessions.append(session)
            turns += own
            samples.append(own[-1])
        rewards = [reward.total for reward in given[-EACH:]]
        mean = sum(rewards) / EACH
        told = tuple(_sample(turn, reward - mean) for turn, reward in zip(samples, rewards, strict=True))
        name = f"pebble-fix-{version}-{place}/0"
        groups.append(
            Group(
                id=f"group/{version}/{place}", prompt=name, rewards=tuple(rewards), samples=told,
                kind=("fix", "add", "rename")[place],
            )
        )  # fmt: skip
    store.record(turns, signals, sessions)
    store.add_rewards(given)
    return groups


def _sample(turn: Turn, advantage: float) -> Sample:
    prompt, said = turn.prompt_ids, turn.completion
    width, size = len(prompt), len(said.ids)
    return Sample(
        session_id=turn.session_id, turns=tuple(range(turn.index + 1)), ids=(*prompt, *said.ids),
        mask=(False,) * width + (True,) * size, logprobs=(0.0,) * width + said.logprobs,
        versions=(0,) * width + said.versions, temperatures=(1.0,) * (width + size), advantage=advantage,
    )  # fmt: skip


def _try(store: Store, spoken: Spoken, chance: random.Random, now: float) -> None:
    """Write a trial under way: users on two arms, whose edits were kept more often by the challenger."""
    since, champion, challenger = now - 24 * DAY_S, 7, FIRST + STEPS - 1
    terms = {
        "experiment": EXPERIMENT, "share": 0.5, "horizon": 400, "alpha": 0.0219, "claim": "better",
        "margin": 0.0, "guardrails": {"complaints": 0.1, "abandoned": 0.1, "broken": 0.1, "latency": 0.405},
        "scales": {"complaints": 1.25},
        "champion": "champion", "challenger": "challenger", "since": since,
        "versions": {"champion": champion, "challenger": challenger},
    }  # fmt: skip
    entry = CycleEntry(
        at=since, by="cycle", action=CycleAction.TRIAL_BEGAN, cycle="cycle-3", detail=json.dumps(terms)
    )
    log_cycle(store, entry)
    sessions: list[Session] = []
    said: list[Turn] = []
    signals: list[Signal] = []
    for number in range(USERS * 6):
        name, ours = f"dev-{number % USERS:02d}", number % 2 == 0
        arm, version = ("challenger", challenger) if ours else ("champion", champion)
        at = since + 13 * DAY_S * number / (USERS * 6)
        session = live(f"e3-{number}", name, "acme", consent=False, at=at, arm=arm)
        turns = _turns(session, spoken, version, chance)
        kept = chance.random() < (0.76 if ours else 0.6)
        kind = SignalKind.EDIT_KEPT if kept else SignalKind.EDIT_REVERTED
        told = [Signal(session_id=session.id, kind=kind, value=1.0, observed_at=at + 400, turn=1, edit="e")]
        if chance.random() < 0.04:
            told.append(
                Signal(session_id=session.id, kind=SignalKind.COMPLAINT, value=1.0, observed_at=at + 300)
            )
        sessions.append(replace(session, ending=Ending.FINISHED))
        said += turns
        signals += told
    store.record(said, signals, sessions)
    engines = ("http://127.0.0.1:9001",), ("http://127.0.0.1:9002", "http://127.0.0.1:9003")
    store.set_arms([
        Arm(name="champion", version=champion, share=0.5, engines=engines[0], experiment=EXPERIMENT),
        Arm(name="challenger", version=challenger, share=0.5, engines=engines[1], experiment=EXPERIMENT),
    ])  # fmt: skip


def _log(store: Store, now: float) -> None:
    alarm = {
        "behaviour": "questions", "shift": {"before": 0.08, "after": 0.31, "p": 0.0005},
        "sessions": ["e3-2", "e3-8", "e3-14"],
    }  # fmt: skip
    held = Verdict(
        version=5, decision=Decision.HOLD, evidence={"alarms": [alarm]}, id="v0",
        reason="monitors: questions went from 0.080 to 0.310 (p = 0.0005), as in e3-2, e3-8, e3-14",
    )  # fmt: skip
    store.add_verdict(held)
    for days, by, action, detail in (
        (25.0, "cycle", CycleAction.STAGE_BEGAN, "gate"),
        (24.1, "cycle", CycleAction.STAGE_DONE, "gate"),
        (24.0, "cycle", CycleAction.STAGE_BEGAN, "ab"),
        (9.0, "ada", CycleAction.PAUSE, "the office moves this week"),
        (6.0, "ada", CycleAction.RESUME, "everybody is back"),
        (2.0, "cycle", CycleAction.ALARM, "effort rises from session e3-90 on"),
    ):
        log_cycle(
            store, CycleEntry(at=now - days * DAY_S, by=by, action=action, cycle="cycle-3", detail=detail)
        )


def _leave(store: Store, spoken: Spoken, now: float) -> None:
    """Write what was never trained on: dropped prompts, void and untrainable turns, and a purged session."""
    ledger, chance = Ledger(store), random.Random(3)
    for number in range(7):
        ledger.reserve(f"dropped/{number}", Stage.PRACTICE)
        ledger.drop(f"dropped/{number}", "no advantage: every session scored alike" if number % 3 else "void")
    for number, (state, reason) in enumerate(
        [
            (State.VOID, "the sandbox did not start"),
            (State.UNTRAINABLE, "sampled with top_k"),
            (State.STALE, None),
        ]
    ):
        session = live(f"left-{number}", "dev-01", "acme", consent=False, at=now - 3 * DAY_S)
        store.record(_turns(session, spoken, 7, chance), [], [session])
        ledger.account_sessions([session.id], state, reason)
    gone = live("gone-1", "mallory", "acme", consent=False, at=now - 4 * DAY_S)
    store.record(_turns(gone, spoken, 7, chance), [], [gone])
    purge(store, by="legal", session="gone-1")
