import pytest

from ostinato.gateway.access.identity import Identity
from ostinato.gateway.conversation_cache import ConversationCache, check_owner, ends_of
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError
from ostinato.gateway.tokens.message_graph import HeldConversation
from ostinato.gateway.tokens.reply_parser import START, next_digest, prefix_digests
from ostinato.store import Store
from ostinato.types import ApiKey, Role, Session, Source

ADA, BOB = ApiKey(hash="1", user="ada"), ApiKey(hash="3", user="bob")
ADMIN = ApiKey(hash="2", user="root", roles=frozenset({Role.ADMIN}))
GO = {"role": "user", "content": "go"}
SAID = {"role": "assistant", "content": "a long and telling answer to it all"}


def named(session_id: str | None) -> Identity:
    return Identity(session_id=session_id, source=Source.LIVE, task_id=None, harness="", turn=None)


async def find(conversations: ConversationCache, *messages, session_id=None, key=ADA) -> HeldConversation:
    chat = ChatRequest(model="ostinato", messages=messages or (GO,))
    return await conversations.find(named(session_id), key, chat, prefix_digests(chat))


async def test_only_so_many_are_held_and_none_in_use_is_let_go(store: Store) -> None:
    conversations = ConversationCache(store, most=2)
    first = await find(conversations, session_id="s1")
    async with first.lock:
        for name in ("s2", "s3", "s4"):
            await find(conversations, session_id=name)
        conversations.let_go("s1")
        assert await find(conversations, session_id="s1") is first
    conversations.let_go("s1")
    assert await find(conversations, session_id="s1") is not first


async def test_without_an_id_the_conversation_decides(store: Store) -> None:
    conversations = ConversationCache(store)
    first, other = await find(conversations), await find(conversations)
    assert first is not other
    end = next_digest(prefix_digests(ChatRequest(model="ostinato", messages=(GO,)))[-1], SAID)
    conversations.note(first, ends_of(end, SAID))
    assert await find(conversations, GO, SAID, GO) is first
    changed = GO | {"content": "rewritten"}
    assert await find(conversations, changed, SAID, GO) is first
    assert await find(conversations, GO, SAID, GO, key=BOB) is not first


async def test_after_a_restart_the_newest_that_began_alike_goes_on(store: Store) -> None:
    names = [(await find(ConversationCache(store))).session.id for _ in range(2)]
    for at, name in enumerate(names):
        store.start_session(
            Session(id=name, source=Source.LIVE, user="ada", arm="", task_id=None, harness="", started_at=at)
        )
    assert (await find(ConversationCache(store), GO, SAID, GO)).session.id == names[1]
    assert (await find(ConversationCache(store), GO)).session.id not in names


def test_a_short_answer_identifies_no_session() -> None:
    assert ends_of(START, {"role": "assistant", "content": "Ok."}) == [START]
    assert len(ends_of(START, SAID)) == 2


async def test_owner_or_admin(store: Store) -> None:
    session = (await find(ConversationCache(store), session_id="s1")).session
    check_owner(session, ADA)
    check_owner(session, ADMIN)
    with pytest.raises(ApiError, match="belongs to another user"):
        check_owner(session, BOB)
