import time
from dataclasses import replace

import pytest
from tests.store.builders import session, turn

from ostinato.loop.team.file import Team, TeamError
from ostinato.loop.team.people import DAY_S, invite, remove, standing
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.store.purge import purge
from ostinato.store.team.joins import JoinError, Joins
from ostinato.types import Ending, Source


def come(store: Store, user: str, *, days_ago: float, number: int = 0) -> None:
    at = time.time() - days_ago * DAY_S
    id_ = f"{user}-{days_ago}-{number}"
    made = session(
        id_,
        source=Source.LIVE,
        user=user,
        organisation="payments",
        arm="champion",
        started_at=at,
        ending=Ending.FINISHED,
        consent=True,
    )
    store.record([replace(turn(0, id_), started_at=at)], [], [made])


def test_a_team_from_its_invitation_to_its_first_candidate(team: Team, record: Store) -> None:
    now, joins = time.time(), Joins(record.database)
    codes = invite(record, ["ada", "ben"], "payments", days=7)
    joins.redeem(codes["ada"], hash_key("k"), consent=True)
    found = standing(record, team.config.live, now)
    assert [(each.user, each.state, each.trained_on) for each in found.people] == [
        ("ada", "joined", False),
        ("ben", "invited", False),
    ]
    assert found.first_in_days is None and "can show nothing" in found.claim
    record.accounts.set_consent(organisation="payments", granted=True, by="boss")
    for number in range(4):
        come(record, "ada", days_ago=2.0, number=number)
    found = standing(record, team.config.live, now)
    (ada, _), arrived = found.people, found.arrived
    assert (ada.sessions, ada.recent, ada.trained_on) == (4, 4, True)
    assert arrived.counted + (arrived.young or 0) == 4
    assert found.first_in_days == pytest.approx((160 - arrived.counted) / 2, rel=0.01)
    late = standing(record, team.config.live, now + 8 * DAY_S)
    assert late.people[1].state == "expired" and late.people[0].recent == 0 and late.first_in_days is None


def test_who_leaves_is_refused_and_their_sessions_stay(team: Team, record: Store) -> None:
    code = invite(record, ["ada"], "payments", days=7)["ada"]
    Joins(record.database).redeem(code, hash_key("k"), consent=True)
    come(record, "ada", days_ago=1.0)
    second = invite(record, ["ada"], "payments", days=7)["ada"]
    person, keys, codes = remove(record, "ada", None)
    assert (person.sessions, keys, codes) == (1, 1, 1)
    assert record.key(hash_key("k")) is None
    with pytest.raises(JoinError, match="withdrawn"):
        Joins(record.database).redeem(second, hash_key("l"), consent=True)
    assert [each.state for each in standing(record, team.config.live, time.time()).people] == ["left"]
    purge(record, user="ada", by="boss")
    assert standing(record, team.config.live, time.time()).people == ()


def test_nobody_else_is_removed(team: Team, record: Store) -> None:
    invite(record, ["ada"], "payments", days=7)
    invite(record, ["ada"], "search", days=7)
    with pytest.raises(TeamError, match="'payments', 'search': say in which"):
        remove(record, "ada", None)
    with pytest.raises(TeamError, match="neither key nor code"):
        remove(record, "eve", None)
    assert remove(record, "ada", "search")[2] == 1
    assert [each.organisation for each in Joins(record.database).open()] == ["payments"]


@pytest.mark.parametrize(("names", "days"), [(["ada", ""], 7), (["ada b"], 7), (["ada"], 0), (["ada"], -1)])
def test_no_code_is_made_for_a_wrong_request(record: Store, names: list[str], days: float) -> None:
    with pytest.raises(TeamError):
        invite(record, names, "", days=days)
    assert Joins(record.database).open() == []
