import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.profiles.prompt import SYSTEM
from ostinato.harness.tools.definitions import TOOLS
from ostinato.model.families import HermesRenderer, assistant_message, parse_text, skeletons
from ostinato.model.tokenizer import Tokenizer
from ostinato.model.transcript import messages_of, tools_of

RENDERER = HermesRenderer(
    Tokenizer.train(["def alpha(a, b):\n    return a + b\n"], 400, skeletons(SYSTEM, TOOLS))
)
words = st.text("abcXYZ 01+-\n", max_size=20)


@given(words, words, words)
def test_a_rendered_conversation_is_read_back(prompt: str, path: str, result: str) -> None:
    arguments = json.dumps({"path": path})
    call = parse_text(f'<tool_call>\n{{"name": "read", "arguments": {arguments}}}\n</tool_call>')
    if call.broken:
        return
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": prompt},
        assistant_message(call, ["c1"]),
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]
    text = RENDERER.tokenizer.decode(RENDERER.render(messages, TOOLS))
    assert tools_of(text) == list(TOOLS)
    user, assistant, tool = messages_of(text)[1:]
    assert user == messages[1]
    assert assistant["tool_calls"][0]["function"] == messages[2]["tool_calls"][0]["function"]
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"]
    assert tool["content"] == result
