"""A small harness for the tests of this room: a system prompt, tools and their tokenizer."""

from functools import cache
from typing import Any

from ostinato.model.families import skeletons
from ostinato.model.tokenizer import Tokenizer

SYSTEM = "You fix code."


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {argument: {"type": kind} for argument, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


TOOLS = [
    tool("read", path="string"),
    tool("edit", path="string", old_string="string", new_string="string"),
    tool("head", path="string", lines="integer"),
    tool("stop"),
]
CORPUS = ["def alpha(a, b):\n    return a + b\n", "calc.py is off", "1 failed, 2 passed", "naïve café ☃"] * 8


@cache
def tokenizer(vocab_size: int = 400) -> Tokenizer:
    return Tokenizer.train(CORPUS, vocab_size, skeletons(SYSTEM, TOOLS))
