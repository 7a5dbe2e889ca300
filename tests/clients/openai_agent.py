"""The smallest agent on the `openai` SDK's chat completions: GATEWAY KEY TASK."""

import json
import sys
from pathlib import Path

import openai

gateway, key, task = sys.argv[1:]
text = {"type": "string"}


def tool(name: str, *parameters: str) -> dict:
    schema = {"type": "object", "properties": dict.fromkeys(parameters, text), "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


def call(name: str, arguments: dict) -> str:
    path = Path(arguments["path"])
    if name == "read":
        return path.read_text()
    path.write_text(path.read_text().replace(arguments["old_string"], arguments["new_string"]))
    return "done"


client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=key, default_headers={"X-Session-Id": "openai-1"})
tools = [tool("read", "path"), tool("edit", "path", "old_string", "new_string")]
messages: list = [{"role": "user", "content": task}]
while True:
    with client.chat.completions.stream(model="ostinato", messages=messages, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
    if not message.tool_calls:
        break
    for made in message.tool_calls:
        result = call(made.function.name, json.loads(made.function.arguments))
        messages.append({"role": "tool", "tool_call_id": made.id, "content": result})
print(message.content)
