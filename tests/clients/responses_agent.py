"""The smallest agent on the `openai` SDK's responses: GATEWAY KEY TASK."""

import json
import sys
from pathlib import Path

import openai

gateway, key, task = sys.argv[1:]
text = {"type": "string"}


def tool(name: str, *parameters: str) -> dict:
    schema = {"type": "object", "properties": dict.fromkeys(parameters, text), "required": list(parameters)}
    return {"type": "function", "name": name, "description": name, "parameters": schema}


def call(name: str, arguments: dict) -> str:
    path = Path(arguments["path"])
    if name == "read":
        return path.read_text()
    path.write_text(path.read_text().replace(arguments["old_string"], arguments["new_string"]))
    return "done"


client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=key, default_headers={"X-Session-Id": "responses-1"})
tools = [tool("read", "path"), tool("edit", "path", "old_string", "new_string")]
items: list = [{"role": "user", "content": task}]
while True:
    with client.responses.stream(model="ostinato", input=items, tools=tools, store=False) as stream:
        response = stream.get_final_response()
    items += [item.model_dump(exclude_none=True) for item in response.output]
    calls = [item for item in response.output if item.type == "function_call"]
    for made in calls:
        result = call(made.name, json.loads(made.arguments))
        items.append({"type": "function_call_output", "call_id": made.call_id, "output": result})
    if not calls:
        break
print(response.output_text)
