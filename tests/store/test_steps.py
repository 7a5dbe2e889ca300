"""The figures of steps in the store, and what it says of their batches."""

from dataclasses import replace

from tests.store.builders import group, session, turn

from ostinato.store import Ledger, Store
from ostinato.store.steps import add_step, dropped_so_far, newest_rewards, steps
from ostinato.types import Reward, RewardPart, State, StepFigures

FIGURES = StepFigures(
    version=1, loss=0.0, gradient=0.0, rows=0, tokens=0, sessions=2, staleness=0, ratio=1.0, cut=0.0,
    reward=0.5, best=1.0, seconds=1.0, waited=0.0,
)  # fmt: skip


def test_steps_are_kept_in_the_order_of_versions_and_once(store: Store) -> None:
    third = replace(FIGURES, version=3)
    for figures in (third, FIGURES, replace(third, loss=9.0)):
        add_step(store, figures)
    assert steps(store) == [FIGURES, third] and steps(store, after=1) == [third]


def test_a_group_keeps_which_sessions_are_behind_its_rewards(store: Store) -> None:
    store.record([turn(0)], sessions=[session()])
    forked = replace(group("a"), trees=(("s1",), ("t", "x", "y")))
    Ledger(store).offer(forked)
    assert Ledger(store).claim(4, 1, 0) == [forked]


def test_the_last_reward_of_each_session_counts(store: Store) -> None:
    store.record([], sessions=[session(), replace(session(), id="s2")])
    first, last, other = (
        Reward(session_id=id_, definition="d", parts=(RewardPart(name="solved", value=value),))
        for id_, value in (("s1", 0.0), ("s1", 1.0), ("s2", 0.5))
    )
    store.add_rewards([first, other, last])
    assert newest_rewards(store, ["s1", "s2", "unknown"]) in ([last, other], [other, last])


def test_what_was_not_trained_on_is_counted_by_reason(store: Store) -> None:
    ledger = Ledger(store)
    store.record([turn(i) for i in range(3)], sessions=[session()])
    for prompt in ("a", "b"):
        ledger.reserve(prompt)
        ledger.drop(prompt, "every session was void")
    ledger.offer(group("old", version=0))
    assert ledger.claim(9, 1, 5) == []
    ledger.account([turn(2).id], State.UNTRAINABLE, "sampled greedily")
    assert dropped_so_far(store) == {
        "dropped: every session was void": 2,
        "stale": 1,
        "turns: sampled greedily": 1,
    }
