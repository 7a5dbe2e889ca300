import json

import pytest

from ostinato.gateway.access.identity import identify
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.gateway.errors import ApiError
from ostinato.types import ApiKey, Role, Source, TurnKind

ADA, BOB = ApiKey(hash="1", user="ada"), ApiKey(hash="3", user="bob")
ADMIN = ApiKey(hash="2", user="root", roles=frozenset({Role.ADMIN}))
ONE, TWO = "0199e8a0-7d6e-7000-8000-000000000001", "0199e8a0-7d6e-7000-8000-000000000002"


def chat(**hints: str) -> ChatRequest:
    return ChatRequest(model="ostinato", messages=({"role": "user", "content": "hi"},), hints=hints)


def test_headers_name_the_session_and_its_source() -> None:
    told = {"x-session-id": "a/b#1", "x-session-source": "bench", "x-task-id": "t", "x-turn": "3"}
    identity = identify(told, ADMIN, chat())
    assert (identity.session_id, identity.source, identity.task_id, identity.turn) == (
        "a/b#1",
        Source.BENCH,
        "t",
        3,
    )
    assert identify({}, ADA, chat()).session_id is None
    with pytest.raises(ApiError, match="role admin"):
        identify(told, ADA, chat())


ORDER = [
    ({"x-session-id": "ours"}, {}),
    ({"x-claude-code-session-id": ONE}, {}),
    ({"session-id": ONE}, {}),
    ({"session_id": ONE}, {}),
    ({}, {"prompt_cache_key": ONE}),
    ({"x-opencode-session": "ses_0123456789abcdef0123"}, {}),
    ({"x-litellm-session-id": ONE}, {}),
    ({}, {"metadata.user_id": ONE}),
    ({"conversation_id": ONE}, {}),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_that_is_there_wins(first: int) -> None:
    headers: dict[str, str] = {}
    hints: dict[str, str] = {}
    for more, hinted in reversed(ORDER[first + 1 :]):
        headers |= dict.fromkeys(more, TWO)
        hints |= dict.fromkeys(hinted, TWO)
    headers |= ORDER[first][0]
    hints |= ORDER[first][1]
    (wanted,) = [*ORDER[first][0].values(), *ORDER[first][1].values()]
    assert identify(headers, ADA, chat(**hints)).session_id == wanted


def test_a_sub_agent_has_a_session_of_its_own() -> None:
    headers = {"x-claude-code-session-id": ONE, "x-claude-code-agent-id": "a7"}
    assert identify(headers, ADA, chat()).session_id == f"{ONE}/a7"


def test_a_name_that_others_may_use_belongs_to_its_user() -> None:
    names = [identify({}, key, chat(prompt_cache_key="my app")).session_id for key in (ADA, BOB)]
    assert names[0] != names[1]
    assert str(names[0]).startswith("my-app.")
    assert names[0] == identify({}, ADA, chat(prompt_cache_key="my app")).session_id


def test_a_header_may_name_the_kind_of_a_turn() -> None:
    assert identify({"x-turn-type": "summary"}, ADA, chat()).kind is TurnKind.SUMMARY
    with pytest.raises(ApiError, match="X-Turn-Type must be one of main, side, summary"):
        identify({"x-turn-type": json.dumps("main")}, ADA, chat())
