import json
from typing import Any

from ostinato.gateway.tokens.reply_parser import canonical_form, without_defaults

PROPERTIES = {
    "path": {"type": "string"},
    "everywhere": {"type": "boolean", "default": False},
    "depth": {"default": 0},
    "odd": True,
}
EDIT = {"type": "function", "function": {"name": "edit", "parameters": {"properties": PROPERTIES}}}
BARE = {"type": "function", "function": {"name": "ls"}}


def made(arguments: Any, name: str = "edit") -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": name, "arguments": raw}}],
    }


def same(one: Any, other: Any, name: str = "edit") -> bool:
    first, second = without_defaults([made(one, name), made(other, name)], [BARE, EDIT])
    return canonical_form(first) == canonical_form(second)


def test_a_default_that_a_client_filled_in_changes_nothing() -> None:
    assert same({"path": "a"}, {"everywhere": False, "path": "a"})
    assert same({"path": "a", "everywhere": False}, {"path": "a", "depth": 0})


def test_an_argument_that_is_no_default_still_counts() -> None:
    assert not same({"path": "a"}, {"path": "a", "everywhere": True})
    assert not same({"path": "a"}, {"path": "a", "everywhere": 0})
    assert not same({"path": "a"}, {"path": "a", "depth": False})
    assert not same({"path": "a"}, {"path": "a", "odd": True})
    assert not same({"path": "a"}, {"path": "a", "everywhere": False}, name="ls")


def test_arguments_that_cannot_be_read_stay_as_they_are() -> None:
    assert same("{oops", "{oops")
    assert not same("{oops", "[]")


def test_messages_without_calls_stay_as_they_are() -> None:
    said = ({"role": "user", "content": "hi"},)
    assert without_defaults(said, [EDIT]) == said and without_defaults(said, ()) == said
