import threading
from pathlib import Path

import pytest

from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.store.purge import purge
from ostinato.store.team.joins import JoinError, Joins

KEY, OTHER = hash_key("key of ada's laptop"), hash_key("key of another machine")


@pytest.fixture
def joins(store: Store) -> Joins:
    return Joins(store.database)


def test_a_code_makes_one_key_and_the_same_machine_may_ask_again(store: Store, joins: Joins) -> None:
    code = joins.invite("ada", "payments", expires_at=2e9)
    assert [(each.user, each.used_at) for each in joins.open()] == [("ada", None)]
    for _ in range(2):  # the answer to the first may have been lost
        assert joins.redeem(code, KEY, consent=True, now=1e9).organisation == "payments"
    key = store.key(KEY)
    assert key is not None and (key.user, key.organisation, key.consent) == ("ada", "payments", False)
    assert [(each.user, each.granted, each.set_by) for each in store.accounts.consents()] == [
        ("ada", True, "ada")
    ]
    assert joins.open() == []
    with pytest.raises(JoinError, match="was used on 2001-09-09") as used:
        joins.redeem(code, OTHER, consent=None, now=1e9)
    assert used.value.kind == "used" and store.key(OTHER) is None


def test_unknown_expired_replaced_and_withdrawn_codes_are_refused(store: Store, joins: Joins) -> None:
    late = joins.invite("bob", "", expires_at=1.0)
    first = joins.invite("ada", "", expires_at=2e9)
    second = joins.invite("ada", "", expires_at=2e9)
    assert joins.withdraw("ada", "") == 1
    for code, kind in (("join_guess", "unknown"), (late, "expired"), (first, "unknown"), (second, "unknown")):
        with pytest.raises(JoinError) as refused:
            joins.redeem(code, KEY, consent=True, now=1e9)
        assert refused.value.kind == kind
    assert store.accounts.keys() == [] and store.accounts.consents() == []


def test_no_code_stands_in_the_record(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    code = Joins(store.database).invite("ada", "", expires_at=2e9)
    store.close()
    assert not any(code.encode() in path.read_bytes() for path in tmp_path.iterdir())


def test_of_machines_that_come_at_once_one_gets_a_key(store: Store, joins: Joins) -> None:
    code, ended = joins.invite("ada", "", expires_at=2e9), list[str]()

    def machine(number: int) -> None:
        try:
            joins.redeem(code, hash_key(str(number)), consent=None)
            ended.append("in")
        except JoinError as error:
            ended.append(error.kind)

    threads = [threading.Thread(target=machine, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(ended) == ["in", *["used"] * 5] and len(store.accounts.keys()) == 1


def test_a_purge_removes_codes(store: Store, joins: Joins) -> None:
    code = joins.invite("ada", "payments", expires_at=2e9)
    purge(store, user="ada", by="boss")
    with pytest.raises(JoinError, match="not known"):
        joins.redeem(code, KEY, consent=None)
