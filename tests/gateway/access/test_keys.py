import pytest

from ostinato.gateway.access.keys import KeyRing, hash_key
from ostinato.gateway.errors import ApiError
from ostinato.store import Store
from ostinato.types import DEVELOPER


async def test_a_known_key_is_its_users(store: Store) -> None:
    ring = KeyRing(store)
    for _ in range(2):
        key = await ring.authenticate({"authorization": "bearer key-of-ada"})
        assert (key.user, key.roles, key.arm) == ("ada", DEVELOPER, None)


async def test_a_key_works_as_soon_as_it_is_added(store: Store) -> None:
    ring = KeyRing(store)
    with pytest.raises(ApiError, match="not known"):
        await ring.authenticate({"authorization": "Bearer new"})
    store.add_key(hash_key("new"), "eve")
    assert (await ring.authenticate({"authorization": "Bearer new"})).user == "eve"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic key-of-ada", "key-of-ada"])
async def test_no_key_is_asked_for(store: Store, header: str) -> None:
    with pytest.raises(ApiError, match="send your API key") as caught:
        await KeyRing(store).authenticate({"authorization": header})
    assert caught.value.status == 401
