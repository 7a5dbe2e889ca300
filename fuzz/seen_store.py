"""A store to look at: one told session with forks, edits and their fate, a group, versions and verdicts.

Tests and benchmarks of the dashboard fill their stores with it. Nothing in it is measured: the figures are
made up, and only their shapes matter.
"""

import math
from collections.abc import Sequence

from fuzz.seen_session import edit_events, live, tell
from ostinato.model.families import HermesRenderer
from ostinato.store import Ledger, Store
from ostinato.store.accounts import hash_key
from ostinato.types import (
    ApiKey,
    Arm,
    Checkpoint,
    Decision,
    Ending,
    Event,
    Group,
    PartState,
    Report,
    Reward,
    RewardPart,
    Role,
    Sample,
    Score,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
    Verdict,
)

NOW = 1_795_000_000.0
STORY, SILENT, FOREIGN = "told/1", "silent/1", "foreign/1"
"""The sessions: one of ada at acme, one of bob at acme without consent, one of carol at globex."""
KEYS = {"key-of-ada": "ada", "key-of-bob": "bob", "key-of-acme": "root", "key-of-carol": "carol"}
ROOT = ("anchor", 185_031, 20)
"""The kind, the bytes and the age in days of the first version."""


def fill(store: Store, renderer: HermesRenderer, *, now: float = NOW) -> None:
    """Write everything into an empty store."""
    _people(store)
    _versions(store, now)
    told = live(STORY, "ada", "acme", consent=True, at=now - 8 * 86_400)
    turns = tell(renderer, told)
    store.record(turns, _signals(told), [told], _events(told))
    _rewards(store, told)
    _teach(store, turns, told)
    for id, name, organisation, consent in (
        (SILENT, "bob", "acme", False),
        (FOREIGN, "carol", "globex", True),
    ):
        session = live(id, name, organisation, consent=consent, at=now - 3_600)
        secret = Signal(
            session_id=id, kind=SignalKind.COMMENT, value=f"secret words of {name}", observed_at=now
        )
        events = edit_events(
            session, f"edit-{name}", 2, at=now, rates=(1.0, 0.4), path=f"secret_of_{name}.py"
        )
        store.record(tell(renderer, session, words=f"secret words of {name}"), [secret], [session], events)
    _practice(store, renderer, now)


def _people(store: Store) -> None:
    for key, name in KEYS.items():
        organisation = "globex" if name == "carol" else "acme"
        roles = frozenset({Role.ADMIN}) if name == "root" else frozenset({Role.USE, Role.FEEDBACK})
        store.accounts.add(ApiKey(hash=hash_key(key), user=name, organisation=organisation, roles=roles))
    store.add_key(hash_key("key-of-all"), "operator", "admin")
    for organisation, name in (("acme", "ada"), ("globex", "carol")):
        store.accounts.set_consent(organisation=organisation, granted=True, by="legal")
        store.accounts.set_consent(organisation=organisation, user=name, granted=True, by=name)


def _signals(session: Session) -> list[Signal]:
    at = session.started_at
    facts: list[tuple[SignalKind, float | str, float, int | None, str | None]] = [
        (SignalKind.USER_PROMPT, 1.0, 0.0, None, None),
        (SignalKind.TOOL_DECISION, 1.0, 21.0, 2, None),
        (SignalKind.EDIT_KEPT, 1.0, 1_250.0, 2, "edit-1"),
        (SignalKind.EDIT_REVERTED, 1.0, 400.0, 5, "edit-2"),
        (SignalKind.COMMENT, "much better than last week", 1_300.0, None, None),
        (SignalKind.ENDING, Ending.FINISHED.value, 60.0, None, None),
    ]
    return [
        Signal(
            session_id=session.id,
            kind=kind,
            value=value,
            observed_at=at + delay,
            turn=turn,
            edit=edit,
            id=f"{session.id}-signal-{number}",
        )
        for number, (kind, value, delay, turn, edit) in enumerate(facts)
    ]


def _events(session: Session) -> list[Event]:
    at = session.started_at
    kept = (1.0, 1.0, 1.0, 0.92, 0.92, 0.92, 0.86, 0.86)
    first = edit_events(session, "edit-1", 2, at=at + 20, rates=kept, path="shapes.py")
    return first + edit_events(session, "edit-2", 5, at=at + 47, rates=(1.0, 1.0, 0.0, 0.0), path="shapes.py")


def _rewards(store: Store, session: Session) -> None:
    waiting = RewardPart(name="outcome", value=0.0, state=PartState.CENSORED)
    effort = RewardPart(name="effort", value=-0.021)
    evidence = (f"{session.id}-signal-2", f"{session.id}-signal-3")
    parts = (
        RewardPart(name="outcome", value=0.25, evidence=evidence),
        RewardPart(name="complaint", value=0.0),
        RewardPart(name="broken", value=-0.5, evidence=(f"{session.id}/5",)),
        effort,
    )
    store.add_rewards(
        [
            Reward(session_id=session.id, definition="a160326693b9", parts=(waiting, effort)),
            Reward(session_id=session.id, definition="a160326693b9", parts=parts),
        ]
    )


def _teach(store: Store, turns: Sequence[Turn], session: Session) -> None:
    """Offer the session as a group of its own, and train version 8 on it."""
    ledger = Ledger(store)
    group = Group(
        id="group/told", prompt=f"live/{session.id}", samples=(_sample(turns[4], 0.41),), rewards=(-0.271,)
    )
    ledger.offer(group)
    ledger.claim(8, 1, 0)
    row = Checkpoint(
        version=8,
        parent=7,
        digest="d8",
        kind="delta",
        bytes=118_276,
        created_at=NOW - 6 * 86_400,
        batch=("group/told",),
    )
    ledger.commit(row)


def _sample(turn: Turn, advantage: float) -> Sample:
    prompt, said = turn.prompt_ids, turn.completion
    width = len(prompt)
    return Sample(
        session_id=turn.session_id,
        turns=tuple(range(turn.index + 1)),
        ids=(*prompt, *said.ids),
        mask=(False,) * width + (True,) * len(said.ids),
        logprobs=(0.0,) * width + said.logprobs,
        versions=(0,) * width + said.versions,
        temperatures=(1.0,) * (width + len(said.ids)),
        advantage=advantage,
    )


def _practice(store: Store, renderer: HermesRenderer, now: float) -> None:
    """Write one group of four sessions on the same task, of which two solve it."""
    rewards = (0.97, 0.94, -0.06, -0.53)
    samples = []
    for number, reward in enumerate(rewards):
        session = Session(
            id=f"practice-{number}",
            source=Source.PRACTICE,
            user="practice",
            arm="practice",
            task_id="pebble-fix-7",
            harness="9f31c0de",
            started_at=now - 5 * 86_400 + number,
            consent=True,
        )
        turns = tell(renderer, session)[: 5 - number]
        solved = [
            Signal(
                session_id=session.id,
                kind=SignalKind.HIDDEN_TESTS,
                value=float(reward > 0.5),
                observed_at=now - 5 * 86_400,
            ),
            Signal(
                session_id=session.id, kind=SignalKind.ENDING, value="finished", observed_at=now - 5 * 86_400
            ),
        ]
        store.record(turns, solved, [session])
        part = RewardPart(name="solved", value=float(reward > 0.5), evidence=(solved[0].id,))
        rest = RewardPart(name="effort", value=reward - float(reward > 0.5))
        store.add_rewards((Reward(session_id=session.id, definition="5be0c1a2d3f4", parts=(part, rest)),))
        samples.append(_sample(turns[-1], reward - sum(rewards) / 4))
    group = Group(
        id="group/practice", prompt="pebble-fix-7/0", samples=tuple(samples), rewards=rewards, kind="fix"
    )
    Ledger(store).offer(group)


def _versions(store: Store, now: float) -> None:
    """Write a lineage with a branch, a report for most versions, two verdicts, and the arms."""
    parents = [None, 0, 1, 2, 3, 4, 5, 4]
    for version, parent in enumerate(parents):
        kind, size, age = ("delta", 74_000 + 9_000 * version, 20 - 2 * version) if version else ROOT
        store.add_version(
            Checkpoint(
                version=version, parent=parent, digest=f"d{version}", kind=kind, bytes=size,
                created_at=now - age * 86_400, batch=(),
            )
        )  # fmt: skip
    for version in (0, 3, 4, 6, 7):
        scores = {
            split: _score(0.1 + 0.08 * version - 0.02 * place, 96)
            for place, split in enumerate(("seeds", "names", "families", "larger"))
        }
        rates = {"turns": 6.2 - 0.2 * version, "broken": 0.2 / (1 + version), "tampered": 0.01}
        store.add_report(
            Report(version=version, scores=scores, rates=rates, harness="9f31c0de", id=f"report-{version}")
        )
    change = {"estimate": 0.11, "low": 0.02, "high": 0.2}
    promoted = {
        "experiment": "e1", "claim": "better", "alpha": 0.02, "harm": 0.05, "sessions": 412, "horizon": 800,
        "users": {"champion": 31, "challenger": 29}, "promoting": change, "harming": change,
        "tokens": {"estimate": -12.0, "low": -40.0, "high": 16.0},
        "rails": {"complaints": {"estimate": -0.01, "low": -0.04, "high": 0.02}},
        "within": {"complaints": {"estimate": -0.01, "low": -0.03, "high": 0.01}},
    }  # fmt: skip
    store.add_verdict(
        Verdict(
            version=6,
            decision=Decision.HOLD,
            reason="seeds may have lost 0.08: +0.000 [-0.103, +0.103]",
            id="v1",
        )
    )
    store.add_verdict(
        Verdict(
            version=7,
            decision=Decision.PROMOTE,
            reason="better: +0.110 [+0.020, +0.200] reward a session",
            evidence=promoted,
            id="v2",
        )
    )
    store.set_arms(
        [
            Arm(name="champion", version=7, share=0.5, engines=("http://127.0.0.1:9001",), experiment="e2"),
            Arm(name="challenger", version=8, share=0.5, engines=("http://127.0.0.1:9002",), experiment="e2"),
        ]
    )


def _score(solve: float, n: int) -> Score:
    solve = min(0.95, max(0.02, solve))
    half = 1.96 * math.sqrt(solve * (1 - solve) / n)
    return Score(solve=solve, n=n, low=max(0.0, solve - half), high=min(1.0, solve + half))
