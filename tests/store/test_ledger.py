"""No prompt is trained twice and no turn disappears, whoever dies when."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.store.builders import group, session, start_python, turn

from ostinato.store import Ledger, LedgerError, Store
from ostinato.types import State

CLAIM_ALL = """
import json, sys
from ostinato.store import Ledger, Store
ledger = Ledger(Store.open(sys.argv[1]))
sys.stdin.readline()
taken = []
while groups := ledger.claim(int(sys.argv[2]), 3, 0):
    taken += [group.id for group in groups]
print(json.dumps(taken))
"""
RESERVE_ALL = """
import sys
from ostinato.store import Ledger, Store
ledger = Ledger(Store.open(sys.argv[1]))
sys.stdin.readline()
print(sum(ledger.reserve(f"prompt {number}") for number in range(100)))
"""


def counts(ledger: Ledger) -> dict[State, int]:
    return {state: count for state, count in ledger.states().items() if count}


@pytest.fixture
def recorded(store: Store) -> Store:
    store.record([turn(i) for i in range(6)], sessions=[session()])
    return store


def test_a_prompt_is_reserved_once_for_ever(store: Store, tmp_path: Path) -> None:
    assert Ledger(store).reserve("p")
    assert not Ledger(store).reserve("p")
    assert not Ledger(Store.open(tmp_path / "record.db")).reserve("p")


def test_groups_are_claimed_in_the_order_they_were_offered(ledger: Ledger) -> None:
    for name in ("b", "a", "c"):
        ledger.offer(group(name, turns=()))
    assert ledger.ready(0) == 3
    assert ledger.claim(9, 2, 0) == [group("b", turns=()), group("a", turns=())]
    assert ledger.claim(9, 2, 0) == [group("c", turns=())]
    assert ledger.claim(9, 2, 0) == []


def test_offering_again_changes_nothing(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.offer(group("a", turns=()))
    assert len(ledger.claim(9, 5, 0)) == 1
    ledger.offer(group("a", turns=()))
    assert ledger.ready(0) == 0


def test_a_second_group_of_a_prompt_is_refused(ledger: Ledger) -> None:
    ledger.offer(group("a"))
    other = group("b")
    object.__setattr__(other, "prompt", "prompt of a")
    with pytest.raises(LedgerError, match="group 'b': prompt 'prompt of a' was offered before as 'a'"):
        ledger.offer(other)


def test_what_is_trained_is_accounted(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("a", turns=(0, 1)))
    ledger.claim(4, 1, 0)
    assert (counts(ledger), ledger.unaccounted()) == ({}, 6)
    assert [ledger.commit(4), ledger.commit(4), ledger.commit(5)] == [1, 0, 0]
    assert (counts(ledger), ledger.unaccounted()) == ({State.TRAINED: 2}, 4)
    assert ledger.trained_twice() == 0


def test_stale_groups_are_dropped_and_accounted(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("old", version=2, turns=(0,)))
    ledger.offer(group("new", version=3, turns=(1,)))
    assert (ledger.ready(3), ledger.ready(2)) == (1, 2)
    assert [found.id for found in ledger.claim(5, 2, 3)] == ["new"]
    assert counts(ledger) == {State.STALE: 1}
    assert ledger.claim(5, 2, 0) == []


def test_a_crash_before_publishing_releases_the_claim(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("a", turns=(0,)))
    ledger.offer(group("b", turns=(1,)))
    ledger.claim(4, 1, 0)
    ledger.claim(5, 1, 0)
    assert (ledger.commit(4), ledger.release_after(4)) == (1, 1)
    assert [found.id for found in ledger.claim(5, 9, 0)] == ["b"]


def test_consent_that_was_taken_back_holds_for_what_waits(store: Store, ledger: Ledger) -> None:
    for user, name in (("ada", "s1"), ("bob", "s2")):
        store.accounts.set_consent(user=user, granted=True, by=user)
        store.record([turn(0, name)], sessions=[session(name, user=user, consent=True)])
        ledger.offer(group(f"g-{user}", session_id=name))
    store.accounts.set_consent(user="ada", granted=False, by="ada")
    assert [found.id for found in ledger.claim(9, 2, 0)] == ["g-bob"]
    assert counts(ledger) == {State.WITHHELD: 1}


def test_closing_out_drops_what_nobody_will_train(recorded: Store, ledger: Ledger) -> None:
    for number, name in enumerate("ab"):
        ledger.offer(group(name, turns=(number,)))
    ledger.claim(4, 1, 0)
    assert [ledger.close_out(), ledger.close_out()] == [1, 0]
    assert counts(ledger) == {State.STALE: 1}
    assert ledger.commit(4) == 1


def test_interrupted_turns_are_void_but_waiting_ones_are_kept(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("a", turns=(0, 1)))
    ledger.account(["s1/2"], State.TRAINED)
    lost = ledger.void_interrupted()
    assert lost == 3
    assert counts(ledger) == {State.TRAINED: 1, State.VOID: 3}
    assert ledger.unaccounted() == 2


def test_turns_are_accounted_by_id_and_by_session(recorded: Store, ledger: Ledger) -> None:
    ledger.account(["s1/0", "s1/1"], State.UNTRAINABLE)
    assert counts(ledger) == {State.UNTRAINABLE: 2}
    ledger.account_sessions(["s1", "unknown"], State.VOID)
    assert (counts(ledger), ledger.unaccounted()) == ({State.VOID: 6}, 0)


def test_trained_stays_trained(recorded: Store, ledger: Ledger) -> None:
    ledger.account(["s1/0"], State.TRAINED)
    ledger.account_sessions(["s1"], State.MEASURED)
    assert counts(ledger) == {State.TRAINED: 1, State.MEASURED: 5}


def test_a_turn_that_was_never_recorded_is_named(recorded: Store, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match=r"turn 's1/9' \(of 1 such\) was never recorded"):
        ledger.account(["s1/0", "s1/9"], State.VOID)
    assert counts(ledger) == {}


def test_a_claim_belongs_to_one_process(tmp_path: Path, ledger: Ledger) -> None:
    names = [f"g{number}" for number in range(60)]
    for name in names:
        ledger.offer(group(name, turns=()))
    claimers = [start_python(CLAIM_ALL, tmp_path / "record.db", version) for version in (4, 5)]
    taken = [json.loads(claimer.communicate("go\n")[0]) for claimer in claimers]
    assert sorted(taken[0] + taken[1]) == sorted(names)
    assert (ledger.commit(4), ledger.commit(5)) == (len(taken[0]), len(taken[1]))


def test_a_reservation_belongs_to_one_process(tmp_path: Path, store: Store) -> None:
    claimers = [start_python(RESERVE_ALL, tmp_path / "record.db") for _ in range(2)]
    assert sum(int(claimer.communicate("go\n")[0]) for claimer in claimers) == 100


class Training(RuleBasedStateMachine):
    """A trainer that may die between any two steps. Each group has one turn of its own."""

    @initialize()
    def start(self) -> None:
        self.folder = TemporaryDirectory()
        self.store = Store.open(Path(self.folder.name) / "record.db")
        self.ledger = Ledger(self.store)
        self.store.start_session(session())
        self.offered, self.published, self.uncommitted = 0, 0, False

    @rule(version=st.integers(0, 4))
    def offer(self, version: int) -> None:
        self.store.record([turn(self.offered)])
        self.ledger.offer(group(f"g{self.offered}", version=version, turns=(self.offered,)))
        self.offered += 1

    @precondition(lambda self: not self.uncommitted)
    @rule(count=st.integers(1, 3), oldest=st.integers(0, 4))
    def claim(self, count: int, oldest: int) -> None:
        assert all(g.oldest_version >= oldest for g in self.ledger.claim(self.published + 1, count, oldest))

    @precondition(lambda self: not self.uncommitted)
    @rule()
    def publish(self) -> None:
        self.published, self.uncommitted = self.published + 1, True

    @rule()
    def commit(self) -> None:
        self.ledger.commit(self.published)
        self.uncommitted = False

    @rule()
    def die_and_restart(self) -> None:
        self.commit()
        self.ledger.release_after(self.published)

    @invariant()
    def nothing_is_trained_twice(self) -> None:
        assert self.ledger.trained_twice() == 0

    def teardown(self) -> None:
        self.die_and_restart()
        self.ledger.close_out()
        unaccounted, states = self.ledger.unaccounted(), self.ledger.states()
        self.store.close()
        self.folder.cleanup()
        assert unaccounted == 0
        assert states[State.TRAINED] + states[State.STALE] == self.offered


Training.TestCase.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestTraining = Training.TestCase
