"""The smallest agent on the `anthropic` SDK's messages: GATEWAY KEY TASK."""

import sys
from pathlib import Path

import anthropic

gateway, key, task = sys.argv[1:]
text = {"type": "string"}


def tool(name: str, *parameters: str) -> dict:
    schema = {"type": "object", "properties": dict.fromkeys(parameters, text), "required": list(parameters)}
    return {"name": name, "description": name, "input_schema": schema}


def call(name: str, arguments: dict) -> str:
    path = Path(arguments["path"])
    if name == "read":
        return path.read_text()
    path.write_text(path.read_text().replace(arguments["old_string"], arguments["new_string"]))
    return "done"


client = anthropic.Anthropic(base_url=gateway, api_key=key, default_headers={"X-Session-Id": "anthropic-1"})
tools = [tool("read", "path"), tool("edit", "path", "old_string", "new_string")]
messages: list = [{"role": "user", "content": task}]
while True:
    with client.messages.stream(model="ostinato", messages=messages, tools=tools, max_tokens=2_000) as stream:
        message = stream.get_final_message()
    messages.append({"role": "assistant", "content": message.content})
    if message.stop_reason != "tool_use":
        break
    results = [
        {"type": "tool_result", "tool_use_id": part.id, "content": call(part.name, part.input)}
        for part in message.content
        if part.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
print(message.content[0].text)
