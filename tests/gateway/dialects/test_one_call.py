"""A client that reads one call of an answer gets one; the turn ends with it and is continued exactly."""

import aiohttp
import pytest

from ostinato.store import Store

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "<tool_call>.py", "n": %d}}\n</tool_call>'
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
FUNCTION = {"name": "read", "parameters": PARAMETERS}
HI = {"role": "user", "content": "hi"}
CHAT = {"messages": [HI], "tools": [{"type": "function", "function": FUNCTION}], "parallel_tool_calls": False}
RESPONSES = {"input": "hi", "tools": [{"type": "function", **FUNCTION}], "parallel_tool_calls": False}
MESSAGES = {
    "max_tokens": 500,
    "messages": [HI],
    "tools": [{"name": "read", "input_schema": PARAMETERS}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "request_of", [("chat/completions", CHAT), ("responses", RESPONSES), ("messages", MESSAGES)]
)
async def test_the_first_call_ends_the_turn(
    gateway: str, script, store: Store, request_of: tuple[str, dict], stream: bool
) -> None:
    script.say = lambda prompt: f"I look. {CALL % 1}\n{CALL % 2}"
    headers = {"Authorization": "Bearer key-of-ada", "X-Session-Id": "s1", "anthropic-version": "2023-06-01"}
    path, body = request_of
    sent = {"model": "ostinato", "stream": stream} | body
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{gateway}/v1/{path}", json=sent) as response,
    ):
        answered = await response.text()
        assert response.status == 200, answered
    (turn,) = store.turns("s1")
    assert turn.broken is None and answered.count("call_0_0") and not answered.count("call_0_1")
    assert script.renderer.tokenizer.decode(turn.completion.ids) == f"I look. {CALL % 1}"


async def test_the_history_of_one_call_is_continued(gateway: str, script, store: Store) -> None:
    script.say = lambda prompt: "done" if "tool_response" in prompt else f"{CALL % 1}\n{CALL % 2}"
    headers = {"Authorization": "Bearer key-of-ada", "X-Session-Id": "s1"}
    async with aiohttp.ClientSession(headers=headers) as http:
        body = dict(CHAT)
        for _ in range(2):
            async with http.post(
                f"{gateway}/v1/chat/completions", json={"model": "ostinato"} | body
            ) as answer:
                message = (await answer.json())["choices"][0]["message"]
            if message.get("tool_calls"):
                result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "x"}
                body = CHAT | {"messages": [HI, message, result]}
    assert [turn.segment for turn in store.turns("s1")] == [0, 0]
