import pytest

from ostinato.gateway.tokens.tool_calls import misuse
from ostinato.model.families import ParsedCall

PROPERTIES = {"path": {"type": "string"}, "limit": {"type": "integer"}, "all": {"type": "boolean"}, "any": {}}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["path"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}]


def called(name: str, **arguments: object) -> str | None:
    return misuse([ParsedCall(name=name, arguments=arguments, raw="")], TOOLS)


def test_a_call_that_fits_is_fine() -> None:
    assert called("read", path="a", limit=3, all=True, any=[1]) is None
    assert misuse([], []) is None


@pytest.mark.parametrize(
    ("name", "arguments", "wrong"),
    [
        ("open", {}, "unknown tool open"),
        ("read", {}, "read without path"),
        ("read", {"path": 3}, "read with a wrong type of path"),
        ("read", {"path": "a", "limit": True}, "read with a wrong type of limit"),
        ("read", {"path": "a", "mode": "r"}, "read with unknown mode"),
    ],
)
def test_a_call_that_does_not_fit_is_named(name: str, arguments: dict[str, object], wrong: str) -> None:
    assert called(name, **arguments) == wrong


def test_schemas_we_cannot_read_hold_nothing_against_a_call() -> None:
    odd = {"properties": {"path": True, "kind": {"type": ["string", "null"]}}}
    tools = [{"type": "function", "function": {"name": "odd", "parameters": odd}}]
    call = ParsedCall(name="odd", arguments={"path": 1, "kind": None, "more": 2}, raw="")
    assert misuse([call], tools) is None
