import pytest

from ostinato.gateway.errors import ApiError
from ostinato.gateway.sessions import Conversations, check_owner, identify
from ostinato.store import ApiKey, Role, Store
from ostinato.types import Source

ADA = ApiKey(hash="1", user="ada")
ADMIN = ApiKey(hash="2", user="root", roles=frozenset({Role.ADMIN}))


def test_headers_say_who_and_why() -> None:
    told = {"x-session-id": "a/b#1", "x-session-source": "bench", "x-task-id": "t", "x-turn": "3"}
    identity = identify(told, ADMIN)
    assert (identity.session_id, identity.source, identity.task_id, identity.turn) == (
        "a/b#1",
        Source.BENCH,
        "t",
        3,
    )
    assert identify({}, ADA).session_id != identify({}, ADA).session_id
    with pytest.raises(ApiError, match="role admin"):
        identify(told, ADA)


async def test_only_so_many_are_held_and_none_in_use_is_let_go(store: Store) -> None:
    conversations = Conversations(store, most=2)
    first = conversations.get(identify({"x-session-id": "s1"}, ADA), ADA)
    async with first.lock:
        for name in ("s2", "s3", "s4"):
            conversations.get(identify({"x-session-id": name}, ADA), ADA)
        conversations.let_go("s1")
        assert conversations.get(identify({"x-session-id": "s1"}, ADA), ADA) is first
    conversations.let_go("s1")
    assert conversations.get(identify({"x-session-id": "s1"}, ADA), ADA) is not first


def test_owner_or_admin(store: Store) -> None:
    session = Conversations(store).get(identify({"x-session-id": "s1"}, ADA), ADA).session
    check_owner(session, ADA)
    check_owner(session, ADMIN)
    with pytest.raises(ApiError, match="belongs to another user"):
        check_owner(session, ApiKey(hash="3", user="bob"))
