import pytest

from ostinato.gateway.access.turn_kind import PHRASES, ClientPhrase, kind_of
from ostinato.gateway.dialects.request import ChatRequest
from ostinato.types import TurnKind

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.words)
def test_habits_of_clients_are_known(phrase: ClientPhrase) -> None:
    told = {"role": phrase.role, "content": [{"type": "text", "text": f"Please: {phrase.words}."}]}
    messages = (told, HI) if phrase.role == "system" else (HI, told)
    assert kind_of({}, ChatRequest(model="ostinato", messages=messages)) is phrase.kind
    assert kind_of({"x-turn-type": "main"}, ChatRequest(model="ostinato", messages=messages)) is TurnKind.MAIN


def test_anything_else_is_the_work_itself() -> None:
    assert kind_of({}, ChatRequest(model="ostinato", messages=(HI,))) is TurnKind.MAIN
    assert (
        kind_of({"x-openai-subagent": "odd"}, ChatRequest(model="ostinato", messages=(HI,))) is TurnKind.MAIN
    )


def test_a_header_of_a_client_and_a_probe() -> None:
    chat = ChatRequest(model="ostinato", messages=(HI,))
    assert kind_of({"x-openai-subagent": "compact"}, chat) is TurnKind.SUMMARY
    assert kind_of({}, ChatRequest(model="ostinato", messages=(HI,), max_tokens=1)) is TurnKind.SIDE
