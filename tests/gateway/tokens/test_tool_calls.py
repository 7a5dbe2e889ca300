import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.tokens.tool_calls import as_declared, misuse
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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["path", "string", "null", "type", "anyOf"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "type", "anyOf", "required"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["properties", "required", "additionalProperties"]), json_values))
def test_no_schema_is_an_error_of_ours(schema: dict[str, object]) -> None:
    call = ParsedCall(name="odd", arguments={"path": 1}, raw="", texts={"path": "1"})
    tools = [{"type": "function", "function": {"name": "odd", "parameters": schema}}]
    assert isinstance(misuse(as_declared([call], tools), tools), str | None)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, '{"a":  1}', '{"a":  1}'),
        ({"type": "string"}, "null", "null"),
        ({"type": ["string", "null"]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "007", "007"),
        ({"type": "number"}, "1.0", 1.0),
        ({}, "true", True),
    ],
)
def test_what_is_written_without_quotes_is_what_the_schema_says(
    schema: dict[str, object], text: str, value: object
) -> None:
    from ostinato.model.families.calls import FORMS

    tools = [{"type": "function", "function": {"name": "w", "parameters": {"properties": {"c": schema}}}}]
    for form in [form for form in FORMS if form.arguments != "json"]:
        written = {
            "qwen3-coder": f"<tool_call>\n<function=w>\n<parameter=c>\n{text}\n</parameter>\n</function>\n",
            "glm": f"<tool_call>w\n<arg_key>c</arg_key>\n<arg_value>{text}</arg_value>\n",
        }[form.name]
        (call,) = as_declared(form.parse(f"{written}</tool_call>").tool_calls, tools)
        assert call.arguments == {"c": value}
