"""Live sessions become samples only where their people agreed."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from tests.store.builders import session, turn, version

from ostinato.loop.trial import observe
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout import collect
from ostinato.rollout.collect import Collector
from ostinato.store import Ledger, Stage, Store
from ostinato.types import Ending, PartState, Sampling, Signal, SignalKind, State, Turn, TurnKind

LATER = 1e12
"""When every attribution window is over."""


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    yield store
    store.close()


def kept(store: Store, id: str, **about: object) -> None:
    """An ended session of one turn whose edit was kept."""
    signal = Signal(session_id=id, kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=1.0)
    store.record([turn(0, id)], [signal], [session(id, ending=Ending.FINISHED, **about)])


def test_only_who_agreed_is_trained_on(store: Store) -> None:
    say = store.accounts.set_consent
    say(organisation="acme", granted=True, by="legal")
    for user in ("ada", "bob"):
        say(organisation="acme", user=user, granted=True, by=user)
    say(organisation="acme", user="bob", granted=False, by="bob")
    kept(store, "agreed", user="ada", organisation="acme", consent=True)
    kept(store, "before-they-agreed", user="ada", organisation="acme", consent=False)
    kept(store, "taken-back", user="bob", organisation="acme", consent=True)
    kept(store, "elsewhere", user="ada", organisation="", consent=True)
    harvest = Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert (harvest.sessions, harvest.offered, harvest.withheld) == (1, 1, 3)
    ledger = Ledger(store)
    (group,) = ledger.claim(4, 9, 0)
    assert group.prompt == "live/agreed"
    assert ledger.states()[State.WITHHELD] == 3
    assert store.rewards("taken-back") == []


def test_consent_given_later_covers_what_is_collected_later_only_if_it_held_then(store: Store) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    kept(store, "agreed", user="ada", consent=True)
    collector = Collector(store, LIVE)
    store.accounts.set_consent(user="ada", granted=False, by="ada")
    assert collector.harvest(["main"], as_of=LATER).withheld == 1
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    assert collector.harvest(["main"], as_of=LATER).offered == 1


def test_turns_that_may_not_be_trained_are_accounted_and_the_rest_is_offered(store: Store) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    signal = Signal(session_id="s", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=1.0)
    title = replace(turn(1, "s"), segment=1, kind=TurnKind.SIDE)
    edited = replace(turn(2, "s"), segment=2, untrainable="edited")
    about = session("s", user="ada", consent=True, ending=Ending.FINISHED)
    greedy = replace(turn(3, "s"), segment=3, sampling=Sampling(temperature=0.0))
    store.record([turn(0, "s"), title, edited, greedy], [signal], [about])
    assert Collector(store, LIVE).harvest(["main"], as_of=LATER).offered == 1
    ledger = Ledger(store)
    (group,) = ledger.claim(4, 9, 0)
    assert [sample.turns for sample in group.samples] == [(0,)]
    assert ledger.states()[State.UNTRAINABLE] == 3
    assert ledger.reasons(State.UNTRAINABLE) == {
        "a call beside the work": 1,
        "edited": 1,
        "sampled greedily": 1,
    }


@pytest.mark.parametrize(("age", "state"), [(0.5, PartState.CENSORED), (1.5, PartState.EXPIRED)])
def test_silence_is_waited_for_until_the_window_is_over(store: Store, age: float, state: PartState) -> None:
    """Sessions that nobody speaks of are trained on with the worth of silence, not left out for ever."""
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    about = session("s1", user="ada", consent=True, ending=Ending.FINISHED)
    store.record([replace(turn(0, "s1"), started_at=time.time() - age * LIVE.train_after_s)], [], [about])
    harvest = Collector(store, LIVE).harvest(["main"], as_of=time.time())
    assert (harvest.censored, harvest.offered) == ((1, 0) if state is PartState.CENSORED else (0, 1))
    assert store.rewards("s1")[-1].parts[0].state is state


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", range(1, 12))
def test_a_kill_during_a_collection_loses_no_session(
    store: Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The kill may come at any transaction of the ledger; the next collection takes the rest."""
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    names = [f"s{i}" for i in range(4)]
    for name in names:
        kept(store, name, user="ada", consent=True)
    left, write = at, store.database.write

    def dying() -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError
        return write()

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "write", dying)
        with contextlib.suppress(KilledError):
            Collector(store, LIVE).harvest(["main"], as_of=LATER)
    again = Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert (again.sessions, again.offered) == (4, 4)
    assert {group.prompt for group in Ledger(store).claim(4, 9, 0)} == {f"live/{name}" for name in names}
    assert [len(store.rewards(name)) for name in names] == [1, 1, 1, 1]


def test_a_long_record_is_collected_in_batches_each_session_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the pages fall, all are offered, each is compared with others, and few are held at a time."""
    names, most = [f"s{i:02}" for i in range(23)], 0
    for name in names:
        user = f"u{int(name[1:]) % 5}"
        store.accounts.set_consent(user=user, granted=True, by=user)
        kept(store, name, user=user, consent=True)
    undone = [
        Signal(session_id=id, kind=SignalKind.EDIT_REVERTED, value=1.0, observed_at=2.0) for id in names[::2]
    ]
    store.record([], undone)
    for name, value in (("COMPARED", 4), ("AT_ONCE", 3), ("PAGE", 5)):
        monkeypatch.setattr(collect, name, value)
    read = store.turns_of

    def counted(ids: Iterable[str]) -> dict[str, list[Turn]]:
        nonlocal most
        listed = list(ids)
        most = max(most, len(listed))
        return read(listed)

    monkeypatch.setattr(store, "turns_of", counted)
    first = Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert (first.sessions, first.offered, first.signals, most) == (23, 23, 35, 3)
    expected = sum(store.rewards(name)[-1].total for name in names) / 23
    assert first.mean_reward == pytest.approx(expected)
    again = Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert (again.sessions, again.offered) == (23, 23)
    groups = Ledger(store).claim(4, 99, 0)
    assert sorted(group.prompt for group in groups) == [f"live/{name}" for name in names]
    assert all(group.samples[0].advantage != 0 for group in groups)


def test_the_last_word_before_the_claim_fixes_the_reward(store: Store) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    kept(store, "s", user="ada", consent=True)
    collector, ledger = Collector(store, LIVE), Ledger(store)
    before = collector.harvest(["main"], as_of=LATER).mean_reward
    undone = Signal(session_id="s", kind=SignalKind.EDIT_REVERTED, value=1.0, observed_at=2.0)
    store.record([], [undone])
    assert ledger.claim(4, 9, 0) == []
    after = collector.harvest(["main"], as_of=LATER)
    assert after.offered == 1 and after.mean_reward < before
    (group,) = ledger.claim(4, 9, 0)
    assert group.rewards == (after.mean_reward,)


def test_a_session_that_was_measured_is_never_collected(store: Store) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    kept(store, "s", user="ada", consent=True)
    Ledger(store).account_sessions(["s"], State.MEASURED)
    assert Collector(store, LIVE).harvest(["main"], as_of=LATER).sessions == 0
    assert Ledger(store).states()[State.MEASURED] == 1


def test_a_simulated_session_is_collected_under_the_key_of_its_task(store: Store) -> None:
    """Practice on the same task, before or after, is refused because of it."""
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    ledger = Ledger(store)
    assert ledger.reserve("key", Stage.LIVE, ["s"]) and not ledger.reserve("key")
    kept(store, "s", user="ada", consent=True)
    Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert [group.prompt for group in ledger.claim(4, 9, 0)] == ["key"]
    assert ledger.unended() == 1, "claimed"


def test_turns_after_the_end_of_a_session_that_was_trained_on_are_too_late(store: Store) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    kept(store, "s", user="ada", consent=True)
    collector, ledger = Collector(store, LIVE), Ledger(store)
    collector.harvest(["main"], as_of=LATER)
    (group,) = ledger.claim(4, 9, 0)
    ledger.commit(version(4, group.id))
    store.record([turn(1, "s")])
    assert collector.harvest(["main"], as_of=LATER).sessions == 0
    assert ledger.unaccounted() == 0 and ledger.states()[State.STALE] == 1


def test_a_session_that_no_judge_has_heard_waits_for_one(store: Store) -> None:
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    for id in ("heard", "unheard"):
        kept(store, id, user="ada", consent=True)
    collector = Collector(store, LIVE)
    first = collector.harvest(["main"], as_of=LATER, unheard={"unheard"})
    assert (first.offered, first.censored) == (1, 1)
    again = collector.harvest(["main"], as_of=LATER)
    assert (again.sessions, again.offered, again.censored) == (2, 2, 0)


def test_nobody_has_more_of_what_is_trained_because_others_cannot_be_trained_on(store: Store) -> None:
    """One person brings 30 sessions, fifty bring one, and two hundred a session sampled at temperature 0."""
    people = ["ada"] * 30 + [f"t{n}" for n in range(50)] + [f"u{n}" for n in range(200)]
    for number, user in enumerate(people):
        store.accounts.set_consent(user=user, granted=True, by=user)
        about = session(f"s{number}", user=user, consent=True, ending=Ending.FINISHED)
        greedy = Sampling(temperature=0.0) if user.startswith("u") else turn(0, about.id).sampling
        kind = SignalKind.EDIT_KEPT if number % 2 else SignalKind.EDIT_REVERTED
        signal = Signal(session_id=about.id, kind=kind, value=1.0, observed_at=1.0)
        store.record([replace(turn(0, about.id), sampling=greedy)], [signal], [about])
    harvest = Collector(store, LIVE, 0.04).harvest(["main"], as_of=LATER)
    assert (harvest.offered, harvest.untrainable) == (80, 200)
    groups = Ledger(store).claim(1, 80, 0)
    moved = {group.prompt: sum(abs(sample.advantage) for sample in group.samples) for group in groups}
    ada = sum(value for prompt, value in moved.items() if int(prompt.removeprefix("live/s")) < 30)
    assert 0 < ada <= 0.06 * sum(moved.values()), "0.04 of the weight, times what rewards differ"
    weight_of = Counter[str]()
    for group in groups:
        weight_of[group.person] += group.weight
    assert len(weight_of) == 51 and not any("ada" in person for person in weight_of)
    assert max(weight_of.values()) == pytest.approx(0.04 * weight_of.total())


def test_a_second_word_on_how_a_session_ended_changes_nothing(store: Store) -> None:
    """Any client may say that our own failure ended its session; the first word stands."""
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    for id in ("a", "b"):
        kept(store, id, consent=True)
    late = Signal(session_id="a", kind=SignalKind.ENDING, value=Ending.INFRASTRUCTURE.value, observed_at=3.0)
    store.record([], [late])
    harvest = Collector(store, LIVE).harvest(["main"], as_of=LATER)
    assert (harvest.sessions, harvest.offered) == (2, 2)
    assert len(observe(store, LIVE, store.sessions(), LATER)) == 2


def test_a_burst_of_one_persons_sessions_is_spread_over_the_versions(store: Store) -> None:
    """Ada's 60 sessions come first, then 60 people bring one each."""
    for number in range(120):
        user = "ada" if number < 60 else f"p{number}"
        store.accounts.set_consent(user=user, granted=True, by=user)
        kept(store, f"s{number:03}", user=user, consent=True, started_at=float(number))
    assert Collector(store, LIVE, 0.02).harvest(["main"], as_of=LATER).offered == 120
    batches = [Ledger(store).claim(number, 30, -9) for number in (1, 2, 3, 4)]
    people = [Counter(group.person for group in batch) for batch in batches]
    ((ada, most),) = sum(people, Counter[str]()).most_common(1)
    assert most == 60 and all(8 <= each[ada] <= 22 for each in people)


def test_a_drawn_session_is_trained_on_once_when_it_is_mature_for_what_came_late(store: Store) -> None:
    """Ten people's edits are kept within the hour; one is undone after 30 hours."""
    ids = [f"{name}{number}" for name in ("wait", "go") for number in range(60)]
    waits = [id_ for id_ in ids if LIVE.late.waits(id_)]
    young = [id_ for id_ in ids if id_ not in waits]
    told = []
    for number, id_ in enumerate(ids):
        user = f"p{number % 10}"
        store.accounts.set_consent(user=user, granted=True, by=user)
        about = session(id_, user=user, consent=True, ending=Ending.FINISHED)
        kept = Signal(session_id=id_, kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=60.0, edit="e")
        store.record([replace(turn(0, id_), started_at=0.0)], [kept], [about])
        if id_ == waits[0]:
            told = [replace(kept, kind=SignalKind.EDIT_REVERTED, observed_at=108_000.0, id="undone")]
    store.record([], told)
    collector, ledger = Collector(store, LIVE), Ledger(store)
    first = collector.harvest(["main"], as_of=2 * LIVE.train_after_s)
    assert (first.offered, first.censored) == (len(young), len(waits)) and len(waits) > 8
    groups = ledger.claim(1, 1_000, 0)
    assert {group.samples[0].session_id for group in groups} == set(young)
    ledger.commit(version(1, *(group.id for group in groups)))
    second = collector.harvest(["main"], as_of=2 * LIVE.mature_s)
    assert (second.offered, second.censored) == (len(waits), 0)
    groups = {group.samples[0].session_id: group for group in ledger.claim(2, 1_000, 0)}
    undone = groups.pop(waits[0])
    assert undone.rewards[0] == pytest.approx(next(iter(groups.values())).rewards[0] - 1.5)
    mean = sum(group.samples[0].advantage for group in groups.values()) / len(groups)
    assert undone.samples[0].advantage < -1.4 / LIVE.late.share < mean
    assert collector.harvest(["main"], as_of=1e12).offered == 0, "each is trained on once"
