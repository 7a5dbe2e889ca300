"""No prompt is trained twice and no turn disappears, whenever a process dies.

Covers store/ledger/ledger.py, store/ledger/group_queries.py, store/ledger/prompt_queries.py,
store/ledger/phases.py, store/ledger/dropped_groups.py and store/ledger/turn_states.py.
"""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select
from tests.databases import NewPlace
from tests.store.builders import group, session, start_python, turn, version

from ostinato.store import Ledger, LedgerError, Phase, Stage, Store, StoreError
from ostinato.store.ledger.phases import BEFORE, ENDS, move
from ostinato.store.sql.schema import prompts
from ostinato.types import Ending, Signal, SignalKind, Source, State

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


def test_a_prompt_is_reserved_once_for_ever(store: Store, place: str) -> None:
    assert Ledger(store).reserve("p")
    assert not Ledger(store).reserve("p")
    assert not Ledger(Store.open(place)).reserve("p")


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


def test_trained_turns_are_accounted(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("a", turns=(0, 1)))
    ledger.claim(4, 1, 0)
    assert (counts(ledger), ledger.unaccounted()) == ({}, 6)
    assert [ledger.commit(version(4, "a")), ledger.commit(version(4, "a"))] == [1, 0]
    assert ledger.commit(version(5)) == 0
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
    assert (ledger.commit(version(4, "a")), ledger.release()) == (1, 1)
    assert [found.id for found in ledger.claim(5, 9, 0)] == ["b"]


def test_consent_that_was_taken_back_withholds_waiting_groups(store: Store, ledger: Ledger) -> None:
    for user, name in (("ada", "s1"), ("bob", "s2")):
        store.accounts.set_consent(user=user, granted=True, by=user)
        store.record([turn(0, name)], sessions=[session(name, user=user, consent=True)])
        ledger.offer(group(f"g-{user}", session_id=name))
    store.accounts.set_consent(user="ada", granted=False, by="ada")
    assert [found.id for found in ledger.claim(9, 2, 0)] == ["g-bob"]
    assert counts(ledger) == {State.WITHHELD: 1}


def test_closing_out_drops_prompts_that_will_not_be_trained(recorded: Store, ledger: Ledger) -> None:
    for number, name in enumerate("ab"):
        ledger.offer(group(name, turns=(number,)))
    ledger.claim(4, 1, 0)
    assert [ledger.close_out(), ledger.close_out()] == [1, 0]
    assert counts(ledger) == {State.STALE: 1}
    assert ledger.commit(version(4, "a")) == 1


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


def test_a_claim_belongs_to_one_process(place: str, ledger: Ledger) -> None:
    names = [f"g{number}" for number in range(60)]
    for name in names:
        ledger.offer(group(name, turns=()))
    claimers = [start_python(CLAIM_ALL, place, version) for version in (4, 5)]
    taken = [json.loads(claimer.communicate("go\n")[0]) for claimer in claimers]
    assert sorted(taken[0] + taken[1]) == sorted(names)
    assert [ledger.commit(version(4 + i, *taken[i])) for i in (0, 1)] == [len(taken[0]), len(taken[1])]


def test_a_reservation_belongs_to_one_process(place: str, store: Store) -> None:
    claimers = [start_python(RESERVE_ALL, place) for _ in range(2)]
    assert sum(int(claimer.communicate("go\n")[0]) for claimer in claimers) == 100


def phase(store: Store, prompt: str) -> tuple[str, str | None]:
    with store.database.read() as connection:
        query = select(prompts.c.phase, prompts.c.reason).where(prompts.c.prompt == prompt)
        found = connection.execute(query).one()
        return found[0], found[1]


def test_a_version_is_committed_by_its_batch_and_not_by_its_number(recorded: Store, ledger: Ledger) -> None:
    """An older version was published under the claimed number again, so nothing is trained."""
    ledger.offer(group("a", turns=(0,)))
    ledger.claim(4, 1, 0)
    assert ledger.commit(version(4)) == 0
    assert counts(ledger) == {}
    assert ledger.release() == 1
    assert [found.id for found in ledger.claim(5, 9, 0)] == ["a"]


def test_a_group_in_the_weights_is_trained_from_any_phase(recorded: Store, ledger: Ledger) -> None:
    """The record lost the claim in a power failure or by a restored copy, but the version exists."""
    ledger.offer(group("a", turns=(0,)))
    ledger.offer(group("b", turns=(1,)))
    ledger.claim(4, 1, 0)
    ledger.release()
    ledger.close_out()
    assert ledger.commit(version(4, "a")) == 1
    assert counts(ledger) == {State.TRAINED: 1, State.STALE: 1}
    assert phase(recorded, "prompt of a") == (Phase.TRAINED, None)


def test_a_group_that_the_record_lost_is_not_sampled_again(ledger: Ledger) -> None:
    assert ledger.commit(version(4, "lost"), ["its prompt"]) == 1
    assert not ledger.reserve("its prompt")
    with pytest.raises(LedgerError, match="'unheard of', which is not in the record"):
        ledger.commit(version(5, "unheard of"))


def test_a_version_known_with_other_weights_trains_nothing(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("a", turns=(0,)))
    ledger.commit(version(4))
    with pytest.raises(StoreError, match="version 4 is recorded with digest"):
        ledger.commit(version(4, "a", digest="of other weights"))
    assert counts(ledger) == {}


def test_training_twice_is_counted_even_if_only_a_batch_shows_it(recorded: Store, ledger: Ledger) -> None:
    ledger.offer(group("a", turns=(0,)))
    ledger.commit(version(4, "a"))
    recorded.add_version(version(5, "a", parent=4))
    assert ledger.trained_twice() == 1


def test_what_a_superseded_candidate_learnt_can_be_learnt_again_once(recorded: Store, ledger: Ledger) -> None:
    """Two versions of one parent share no weights; a candidate that stays keeps what it learnt."""
    first, again = group("a", turns=(0,)), group("again", turns=(0,))
    ledger.offer(first, stage=Stage.LIVE)
    ledger.claim(4, 1, 0)
    ledger.commit(version(4, "a", parent=3))
    assert ledger.give_back(4, 3) == 1 and phase(recorded, first.prompt)[0] == Phase.RESERVED
    assert ledger.give_back(4, 3) == ledger.unended() == 0
    ledger.offer(replace(again, prompt=first.prompt), stage=Stage.LIVE)
    ledger.commit(version(6, "again", parent=3))
    assert ledger.give_back(4, 3) == 0 and phase(recorded, first.prompt)[0] == Phase.TRAINED
    assert ledger.trained_twice() == 0


def test_a_store_is_the_record_of_one_chain(ledger: Ledger) -> None:
    ledger.bind("c0")
    ledger.bind("c0")
    with pytest.raises(LedgerError, match="chain of weights 'c0', not of 'c1'"):
        ledger.bind("c1")


def heard(session_id: str = "s1") -> Signal:
    return Signal(session_id=session_id, kind=SignalKind.EDIT_REVERTED, value=1.0, observed_at=9.0)


def test_a_signal_before_the_claim_sends_a_session_back(recorded: Store, ledger: Ledger) -> None:
    assert ledger.offer(group("a", turns=(0,)), stage=Stage.LIVE, facts=6)
    assert ledger.offer(group("b", turns=(1,)))
    recorded.record([], [heard()])
    assert [found.id for found in ledger.claim(4, 9, 0)] == ["b"]
    assert phase(recorded, "prompt of a") == (Phase.RESERVED, "more was heard of it")
    assert counts(ledger) == {State.CENSORED: 1}
    assert ledger.offer(group("again", turns=(0,)), stage=Stage.PRACTICE)


def test_a_signal_before_the_offer_refuses_it(recorded: Store, ledger: Ledger) -> None:
    recorded.record([], [heard()])
    assert not ledger.offer(group("a", turns=(0,)), stage=Stage.LIVE, facts=6)
    assert ledger.ready(0) == 0 and ledger.reserve("prompt of a")


def test_an_offer_reserves_in_the_same_transaction(ledger: Ledger) -> None:
    ledger.offer(group("a", turns=()))
    assert not ledger.reserve("prompt of a")


def test_a_prompt_without_a_group_ends_with_a_reason(store: Store, ledger: Ledger) -> None:
    for prompt in ("void", "killed"):
        ledger.reserve(prompt)
    assert ledger.unended() == 2
    ledger.drop("void", "every session was void")
    assert ledger.unended() == 1
    ledger.void_interrupted()
    assert ledger.unended() == 0
    assert phase(store, "void") == (Phase.DROPPED, "every session was void")
    assert phase(store, "killed") == (Phase.DROPPED, "interrupted")
    with pytest.raises(LedgerError, match="'void' is not reserved"):
        ledger.drop("void", "again")


def test_an_interrupted_live_session_is_dropped_and_an_ended_one_waits(store: Store, ledger: Ledger) -> None:
    for name, ending in (("open", None), ("ended", Ending.FINISHED)):
        ledger.reserve(f"key of {name}", Stage.LIVE, [name])
        store.record([turn(0, name)], sessions=[session(name, ending=ending)])
    ledger.void_interrupted()
    assert phase(store, "key of open") == (Phase.DROPPED, "interrupted")
    assert ledger.live_prompts(["ended", "other"]) == {
        "ended": ("key of ended", Phase.RESERVED),
        "other": ("live/other", None),
    }


def test_a_claimed_group_that_cannot_be_trained_on_is_dropped_with_its_reason_once(
    recorded: Store, ledger: Ledger
) -> None:
    for name, number in (("a", 0), ("b", 1), ("c", 2)):
        ledger.offer(group(name, turns=(number,)))
    ledger.claim(1, 2, 0)
    with pytest.raises(LedgerError, match="is not reserved"):
        ledger.drop("prompt of a", "too late")
    reasons = {"b": "gradient not finite", "c": "it was not even claimed"}
    for _ in range(2):
        ledger.commit(version(1, "a"), ["prompt of a"], reasons)
    assert ledger.drop_claimed(reasons) == 0 and ledger.release() == 0
    phases = [phase(recorded, f"prompt of {name}") for name in "abc"]
    assert phases == [(Phase.TRAINED, None), (Phase.DROPPED, reasons["b"]), (Phase.OFFERED, None)]
    assert ledger.reasons(State.UNTRAINABLE) == {"gradient not finite": 1}


@pytest.mark.parametrize("state", [State.VOID, State.MEASURED, State.UNTRAINABLE])
def test_a_live_session_that_is_never_trained_on_ends_its_prompt(
    store: Store, ledger: Ledger, state: State
) -> None:
    ledger.reserve("shown", Stage.LIVE, ["s1"])
    store.record([turn(0, "s1"), turn(0, "s2")], sessions=[session("s1"), session("s2")])
    ledger.account_sessions(["s1", "s2"], state)
    assert phase(store, "shown") == phase(store, "live/s2") == (Phase.DROPPED, state.value)


def test_a_version_of_a_teacher_names_its_lessons(store: Store, ledger: Ledger) -> None:
    for name in ("read", "unread"):
        ledger.reserve(name, Stage.LESSON, [f"{name}-{i}" for i in range(2)])
    for i in range(2):
        store.record([turn(0, f"read-{i}")], sessions=[session(f"read-{i}", source=Source.TEACHER)])
    ledger.account_sessions(["read-0", "read-1"], State.TRAINED)
    assert ledger.lessons_read() == ("lesson/read",)
    assert ledger.commit(version(0, *ledger.lessons_read())) == 1
    ledger.close_out()
    assert phase(store, "read") == (Phase.TRAINED, None)
    assert phase(store, "unread") == (Phase.DROPPED, "no group came of it")
    assert ledger.trained_twice() == ledger.unended() == 0
    assert store.versions()[0].batch == ("lesson/read",)


def test_every_phase_is_entered_and_left_as_drawn(store: Store, ledger: Ledger) -> None:
    """A prompt moves as the table says for every pair of phases, and a refused move changes nothing."""
    for before in Phase:
        for after in Phase:
            prompt = f"{before} to {after}"
            with store.database.write() as connection:
                row = {"prompt": prompt, "stage": "practice", "phase": before.value}
                connection.execute(prompts.insert(), row)
            allowed = before in BEFORE[after]
            if allowed:
                with store.database.write() as connection:
                    move(connection, [prompt], after)
            else:
                with pytest.raises(LedgerError), store.database.write() as connection:
                    move(connection, [prompt], after)
            assert phase(store, prompt)[0] == (after if allowed else before)
            given_back = (before, after) == (Phase.TRAINED, Phase.RESERVED)
            assert not allowed or after is Phase.TRAINED or before not in ENDS or given_back


class Training(RuleBasedStateMachine):
    """A trainer that may die between any two steps, beside people who say more and take their consent back.

    Each group has one session with one turn. `weights` is what the newest published version contains.
    """

    def __init__(self, new_place: NewPlace) -> None:
        super().__init__()
        self.opened = ExitStack()
        self.place = self.opened.enter_context(new_place())

    @initialize()
    def start(self) -> None:
        self.store = Store.open(self.place)
        self.ledger = Ledger(self.store)
        self.offered, self.published, self.claimed = 0, 0, list[str]()
        self.uncommitted: tuple[str, ...] | None = None
        self.weights: set[str] = set()

    @rule(version=st.integers(0, 4), live=st.booleans())
    def offer(self, version: int, live: bool) -> None:
        name = f"s{self.offered}"
        self.store.record([turn(0, name)], sessions=[session(name)])
        stage, facts = (Stage.LIVE, 1) if live else (Stage.PRACTICE, None)
        one = group(f"g{self.offered}", version=version, session_id=name)
        assert self.ledger.offer(one, stage=stage, facts=facts)
        self.offered += 1

    @rule(which=st.integers(0, 9))
    def hear_more(self, which: int) -> None:
        if which < self.offered:
            kept = Signal(session_id=f"s{which}", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=1.0)
            self.store.record([], [kept])

    @precondition(lambda self: self.uncommitted is None)
    @rule(count=st.integers(1, 3), oldest=st.integers(0, 4))
    def claim(self, count: int, oldest: int) -> None:
        found = self.ledger.claim(self.published + 1, count, oldest)
        assert all(g.oldest_version >= oldest for g in found)
        self.claimed += [g.id for g in found]

    @precondition(lambda self: self.uncommitted is None and self.claimed)
    @rule()
    def publish(self) -> None:
        assert not self.weights & set(self.claimed), "trained twice"
        self.published, self.uncommitted = self.published + 1, tuple(self.claimed)
        self.weights |= set(self.claimed)
        self.claimed = []

    @rule()
    def commit(self) -> None:
        if self.uncommitted is not None:
            self.ledger.commit(version(self.published, *self.uncommitted))
            self.uncommitted = None

    @precondition(lambda self: self.uncommitted is None)
    @rule()
    def put_an_older_version_back(self) -> None:
        """Another process publishes a version without the groups that are claimed for its number."""
        self.published += 1
        self.ledger.commit(version(self.published))

    @rule()
    def die_and_restart(self) -> None:
        self.commit()
        self.ledger.release()
        self.claimed = []

    @invariant()
    def nothing_is_trained_twice(self) -> None:
        assert self.ledger.trained_twice() == 0

    def teardown(self) -> None:
        self.die_and_restart()
        self.ledger.close_out()
        unaccounted, states, unended = self.ledger.unaccounted(), self.ledger.states(), self.ledger.unended()
        self.store.close()
        self.opened.close()
        assert (unaccounted, unended) == (0, 0)
        assert states[State.TRAINED] == len(self.weights)
        assert states[State.TRAINED] + states[State.STALE] + states[State.CENSORED] == self.offered


def test_no_order_of_events_trains_twice_or_loses_a_turn(new_place: NewPlace) -> None:
    few = settings(max_examples=25, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(lambda: Training(new_place), settings=few)


def test_a_held_out_prompt_never_reaches_training(store: Store) -> None:
    ledger = Ledger(store)
    ledger.hold_out(["kept", "other"])
    ledger.hold_out(["kept"])  # a run that goes on holds the same prompts again
    assert not ledger.reserve("kept") and ledger.unended() == 0
    with pytest.raises(LedgerError, match="'kept' is held-out"):
        ledger.offer(replace(group("g"), prompt="kept"))
    with pytest.raises(LedgerError, match="'kept' is held-out"):
        ledger.commit(version(1, "g"), ["kept"])
    ledger.close_out()
    assert not ledger.reserve("kept")


def test_a_prompt_that_was_shown_cannot_be_held_out(store: Store) -> None:
    ledger = Ledger(store)
    ledger.reserve("shown", Stage.LESSON)
    with pytest.raises(LedgerError, match="the stage lesson showed it"):
        ledger.hold_out(["new", "shown"])
    assert ledger.reserve("new"), "nothing was changed"
