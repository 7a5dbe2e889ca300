"""What a scripted model says."""

import json


def call_text(name: str, **arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


STORY = [
    "I look first.\n" + call_text("read", path="calc.py"),
    call_text("edit", path="calc.py", old_string="a - b", new_string="a + b"),
    call_text("write", path="new.py", content="x = 1\n"),
    "alpha adds now",
]
