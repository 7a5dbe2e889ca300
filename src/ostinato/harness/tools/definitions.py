"""The tools as the model sees them: OpenAI function schemas under their canonical names."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ostinato.extend import Registry
from ostinato.sandbox.base import Sandbox

Schema = Mapping[str, Any]

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}
STRINGS = {"type": "array", "items": {"type": "string"}}
STATUSES = ("pending", "in_progress", "completed")
PRIORITIES = ("high", "medium", "low")


def tool(name: str, description: str, required: tuple[str, ...], /, **properties: Any) -> dict[str, Any]:
    """Return a function schema, under which unknown arguments are refused."""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": record(required, **properties)},
    }


def record(required: tuple[str, ...], /, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def records(required: tuple[str, ...], /, **properties: Any) -> dict[str, Any]:
    """Return the schema of a list of such objects."""
    return {"type": "array", "items": record(required, **properties)}


def one_of(values: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


TOOLS: list[dict[str, Any]] = [
    tool(
        "read",
        "Read a file. Long files are cut; continue with offset (first line, from 1) and limit.",
        ("path",),
        path=STRING,
        offset=INTEGER,
        limit=INTEGER,
    ),
    tool(
        "write",
        "Create a file or replace all of its content.",
        ("path", "content"),
        path=STRING,
        content=STRING,
    ),
    tool(
        "edit",
        "Replace old_string by new_string in a file. old_string must match exactly, whitespace included, "
        "and occur once unless replace_all is true.",
        ("path", "old_string", "new_string"),
        path=STRING,
        old_string=STRING,
        new_string=STRING,
        replace_all=BOOLEAN,
    ),
    tool(
        "bash",
        "Run a shell command in the repository root; returns stdout and stderr. Each call is a new shell. "
        "timeout is in seconds.",
        ("command",),
        command=STRING,
        timeout=INTEGER,
    ),
    tool(
        "grep",
        "Search file contents with an extended regular expression; returns path:line:text. "
        "glob filters file names.",
        ("pattern",),
        pattern=STRING,
        path=STRING,
        glob=STRING,
        limit=INTEGER,
    ),
    tool("ls", "List a directory of the repository; directories end in a slash.", (), path=STRING),
    tool(
        "ask_user",
        "Ask the user one question when the repository cannot answer it.",
        ("question",),
        question=STRING,
        options=STRINGS,
    ),
]
"""The tools of the profile `core`.

A word changed here is another harness, and checkpoints are trained with it.
"""

MORE_TOOLS: list[dict[str, Any]] = [
    tool(
        "apply_patch",
        "Change several files at once, all or none. The patch is *** Begin Patch, then for each file "
        "*** Add File: path with + lines, *** Delete File: path, or *** Update File: path, *** Move to: path "
        "and hunks of @@ and lines that start with a space, - or +; then *** End Patch.",
        ("patch",),
        patch=STRING,
    ),
    tool(
        "glob",
        "Find files by name, ** crosses directories; returns paths relative to the repository.",
        ("pattern",),
        pattern=STRING,
        path=STRING,
        limit=INTEGER,
    ),
    tool(
        "semantic_search",
        "Find the parts of the repository closest in meaning to a query; returns path:first-last and text.",
        ("query",),
        query=STRING,
        path=STRING,
        k=INTEGER,
    ),
    tool(
        "todo_write",
        "Write down the plan: the whole list every time, one step in_progress.",
        ("todos",),
        todos=records(
            ("content", "status"), content=STRING, status=one_of(STATUSES), priority=one_of(PRIORITIES)
        ),
    ),
]
CATALOGUE: Registry[dict[str, Any]] = Registry(
    "tool", {each["function"]["name"]: each for each in [*TOOLS, *MORE_TOOLS]}
)

RunTool = Callable[[Sandbox, Mapping[str, Any]], Awaitable[str]]
ADDED: Registry[RunTool] = Registry("tool", {})
"""The functions that run the tools of plug-ins."""


def add_tool(schema: Mapping[str, Any]) -> Callable[[RunTool], RunTool]:
    """Return a decorator that adds a tool, by its schema as `tool_schema` makes it; profiles offer it.

    The function gets the sandbox that the agent works in and the arguments, which fit the schema, and returns
    the text that the model reads. It raises ToolError for what the model can mend; anything else is our own
    failure and makes the session void.
    """

    def add(function: RunTool) -> RunTool:
        name: str = schema["function"]["name"]
        CATALOGUE.add(name, dict(schema))
        return ADDED.add(name, function)

    return add
