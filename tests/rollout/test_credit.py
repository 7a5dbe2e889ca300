"""Rewards and advantages of a harvest, from a constant number of queries."""

from collections.abc import Iterator

import pytest
from sqlalchemy import event
from tests.store.builders import session, turn

from ostinato.extend import PluginError
from ostinato.rewards.live.definition import LIVE
from ostinato.rollout.credit import Credited, Scored, credit_group, credit_live, samples, score_live
from ostinato.store import Ledger, Store
from ostinato.types import Ending, Reward, Signal, SignalKind, State


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = Store.open(place)
    for i in range(8):
        kind = SignalKind.EDIT_KEPT if i % 2 else SignalKind.EDIT_REVERTED
        signal = Signal(session_id=f"s{i}", kind=kind, value=1.0, observed_at=1.0)
        store.record([turn(0, f"s{i}")], [signal], [session(f"s{i}", ending=Ending.FINISHED)])
    yield store
    store.close()


def test_the_number_of_queries_does_not_grow_with_the_sessions(store: Store) -> None:
    statements: list[object] = []
    event.listen(store.database.engine, "before_cursor_execute", lambda *about: statements.append(about))
    counts = []
    for sessions in (store.sessions()[:2], store.sessions()):
        statements.clear()
        assert len(score_live(store, LIVE, sessions, as_of=1e12)) == len(sessions)
        counts.append(len(statements))
    assert counts[0] == counts[1] > 0


def test_a_live_session_is_compared_with_the_others_of_its_stratum(store: Store) -> None:
    scored = score_live(store, LIVE, store.sessions(), as_of=1e12)
    credited = credit_live(scored, ["fix"] * 4 + ["question"] * 4)
    assert [each.session_id for each in credited] == [f"s{i}" for i in range(8)]
    for stratum in (credited[:4], credited[4:]):
        assert sum(each.advantage for each in stratum) == pytest.approx(0)
        assert stratum[1].advantage > 0 > stratum[0].advantage


def test_the_turns_of_a_session_without_samples_are_accounted(store: Store) -> None:
    store.record([turn(1, "s0")])
    ledger, turns = Ledger(store), store.turns_of(["s0"])["s0"]
    bad = Credited(session_id="s0", turns=turns[::-1], advantage=1.0)
    assert samples(ledger, bad) == []
    assert ledger.states()[State.UNTRAINABLE] == 2
    (sample,) = samples(ledger, Credited(session_id="s1", turns=store.turns_of(["s1"])["s1"], advantage=0.5))
    assert sample.advantage == 0.5


class Failing:
    """A definition of which a plug-in fails."""

    def score(self, *_: object, **__: object) -> Reward:
        raise PluginError("the fault select_star failed at my_team.py line 3")


def test_a_group_on_which_a_plugin_fails_is_not_learnt_from(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    trees = [Scored(trunk=None, branches=("a",)), Scored(trunk=None, branches=("b",))]
    assert credit_group(store, Failing(), trees) == ([], ())
    assert "my_team.py line 3" in caplog.text
