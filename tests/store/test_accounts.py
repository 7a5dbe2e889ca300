"""Keys and consent: the last decision holds, and the earlier ones are kept."""

import pytest
from tests.databases import ON_A_FILE
from tests.store.builders import session

from ostinato.store import AccountError, Store
from ostinato.store.accounts import hash_key, new_key, read_roles
from ostinato.types import ApiKey, Role, Source

ADA = ApiKey(hash="ab12", user="ada", organisation="acme", requests_per_minute=60, concurrent=2)


def test_a_key_comes_back_as_it_was_added(store: Store) -> None:
    store.accounts.add(ADA)
    found = store.accounts.key("ab12")
    assert found is not None
    assert (found.user, found.organisation, found.roles) == ("ada", "acme", {Role.USE, Role.FEEDBACK})
    assert (found.requests_per_minute, found.concurrent, found.arm) == (60, 2, None)
    assert found.created_at > 0
    assert store.accounts.keys() == [found]


def test_a_revoked_key_stays_revoked(store: Store) -> None:
    store.accounts.add(ADA)
    assert store.accounts.revoke("ab").user == "ada"
    store.accounts.add(ADA)
    assert store.accounts.key("ab12") is None
    with pytest.raises(AccountError, match="0 keys begin with 'ab12'"):
        store.accounts.revoke("ab12")


def test_only_an_unambiguous_key_is_revoked(store: Store) -> None:
    store.accounts.add(ADA)
    store.accounts.add(ApiKey(hash="ab99", user="bob"))
    for unclear in ("ab", "", "cd"):
        with pytest.raises(AccountError, match="keys begin with"):
            store.accounts.revoke(unclear)
    assert len(store.accounts.keys()) == 2


def test_retired_keys_are_refused_and_others_stay(store: Store) -> None:
    hashes = [hash_key(new_key()) for _ in range(3)]
    for hash in hashes:
        store.accounts.add(ApiKey(hash=hash, user="dev"))
    store.accounts.add(ADA)
    store.accounts.retire([*hashes, "unknown"])
    left = store.accounts.keys()
    assert [key.user for key in left] == ["ada"]
    store.accounts.add(ApiKey(hash=hashes[0], user="dev"))
    assert store.accounts.key(hashes[0]) is None


def test_an_admin_may_do_everything(store: Store) -> None:
    root = ApiKey(hash="1", user="root", roles=read_roles("admin"))
    assert all(root.may(role) for role in Role)
    assert not ApiKey(hash="1", user="ci", roles=read_roles("use")).may(Role.FEEDBACK)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (ApiKey(hash="1", user=""), "needs a user"),
        (ApiKey(hash="1", user="a", roles=frozenset()), "at least one role"),
        (ApiKey(hash="1", user="a", requests_per_minute=0), "requests_per_minute must be at least 1"),
        (ApiKey(hash="1", user="a", concurrent=-1), "concurrent must be at least 1"),
    ],
)
def test_an_invalid_key_is_refused(store: Store, key: ApiKey, message: str) -> None:
    with pytest.raises(AccountError, match=message):
        store.accounts.add(key)
    assert store.accounts.keys() == []


def test_unknown_roles_are_named() -> None:
    with pytest.raises(AccountError, match="roles are use, feedback, admin"):
        read_roles("use,king")


def test_both_must_agree_and_either_may_withdraw(store: Store) -> None:
    say = store.accounts.set_consent
    store.accounts.add(ADA)

    def consents() -> bool:
        key = store.accounts.key("ab12")
        assert key is not None
        assert key.consent == store.accounts.consented([("acme", "ada")])["acme", "ada"]
        return key.consent

    assert not consents()
    say(organisation="acme", user="ada", granted=True, by="ada")
    assert not consents()
    say(organisation="acme", granted=True, by="legal")
    assert consents()
    say(organisation="acme", granted=False, by="legal")
    assert not consents()
    say(organisation="acme", granted=True, by="legal")
    say(organisation="acme", user="ada", granted=False, by="ada")
    assert not consents()
    assert [word.set_by for word in store.accounts.consents()] == ["ada", "legal", "legal", "legal", "ada"]


def test_a_user_without_an_organisation_decides_alone(store: Store) -> None:
    store.accounts.set_consent(user="eve", granted=True, by="eve")
    assert store.accounts.consented([("", "eve"), ("acme", "eve"), ("", "")]) == {
        ("", "eve"): True,
        ("acme", "eve"): False,
        ("", ""): False,
    }


def test_consent_without_an_owner_is_refused(store: Store) -> None:
    with pytest.raises(AccountError, match="consent needs an owner"):
        store.accounts.set_consent(granted=True, by="me")


@ON_A_FILE
def test_keys_are_long_and_only_their_hash_is_kept(store: Store) -> None:
    key = new_key()
    assert len(key) > 40 and new_key() != key
    store.add_key(hash_key(key), "ada")
    assert key.encode() not in b"".join(path.read_bytes() for path in store_files(store))


def store_files(store: Store) -> list:
    from pathlib import Path

    return list(Path(str(store.database.url.database)).parent.glob("record.db*"))


def test_what_may_be_trained_on_had_consent_when_it_began_and_has_it_now(store: Store) -> None:
    for user, now in (("ada", True), ("ben", False), ("eve", True)):
        store.accounts.set_consent(user=user, granted=now, by=user)
    told = [
        session(f"{source}-{user}-{then}", user=user, source=source, consent=then)
        for source in (Source.LIVE, Source.IMPORTED, Source.PRACTICE)
        for user, then in (("ada", True), ("ben", True), ("eve", False))
    ]
    kept = [each.id for each in store.accounts.may_train_on(told)]
    assert kept == ["live-ada-True", "imported-ada-True", "practice-ada-True", "practice-ben-True"]
