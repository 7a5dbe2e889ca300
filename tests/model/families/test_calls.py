"""Covers model/families/calls.py: what each family's form of calls and reasoning is read as."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.model.families.calls import FORMS, HERMES, form_of

WRITTEN = {
    "hermes": 'ok\n<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>',
    "qwen3-coder": "ok\n<tool_call>\n<function=read>\n<parameter=path>\na.py\n</parameter>\n"
    "</function>\n</tool_call>",
    "glm": "ok\n<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.py</arg_value>\n</tool_call>",
    "mistral": 'ok[TOOL_CALLS]read[ARGS]{"path": "a.py"}',
    "llama3": '{"name": "read", "parameters": {"path": "a.py"}}',
    "deepseek": "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n"
    '{"path": "a.py"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "kimi-k2": "ok<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{"path": "a.py"}<|tool_call_end|><|tool_calls_section_end|>',
    "gpt-oss": "<|channel|>commentary<|message|>ok<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.read <|constrain|>json<|message|>{"path": "a.py"}',
}
BY_NAME = {form.name: form for form in (*FORMS, HERMES)}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_call_is_read(name: str) -> None:
    parsed = BY_NAME[name].parse(WRITTEN[name])
    assert parsed.broken is None
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("read", {"path": "a.py"})]
    assert parsed.content == ("" if name == "llama3" else "ok")


def test_deepseek_also_writes_calls_without_a_fence_and_mistral_lists() -> None:
    newer = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
    assert BY_NAME["deepseek"].parse(newer).tool_calls[0].name == "read"
    listed = BY_NAME["mistral"].parse(
        '[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]'
    )
    assert [call.name for call in listed.tool_calls] == ["a", "b"]


@pytest.mark.parametrize("name", BY_NAME)
@given(st.text("<>{}|/[]ab:\"' \n｜▁", max_size=30))
def test_whatever_is_sampled_is_read_or_named_as_broken(name: str, text: str) -> None:
    form = BY_NAME[name]
    for start in ("", form.marks[0], WRITTEN[name]):
        parsed = form.parse(start + text)
        assert parsed.broken is None or not parsed.tool_calls


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "gpt-oss"])
def test_reasoning_is_kept_apart_whether_or_not_the_prompt_began_it(name: str) -> None:
    form = BY_NAME[name]
    start, end = form.think
    for text, opened in ((f"{start}\nhm\n{end}\n\nyes", False), (f"hm\n{end}\n\nyes", True)):
        parsed = form.parse(text, opened)
        assert (parsed.reasoning, parsed.content) == ("hm", "yes")


def test_analysis_is_reasoning() -> None:
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes"
    parsed = form_of("… <|channel|> …").parse(text)
    assert (parsed.reasoning, parsed.content, parsed.broken) == ("hm", "yes", None)


@given(
    st.lists(
        st.sampled_from(["</parameter>", "</function>", "</tool_call>", "</arg_value>", "\n", " x"]),
        max_size=5,
    ).map("".join)
)
def test_a_value_may_hold_the_tags_that_end_it(inner: str) -> None:
    value = f"a{inner}z"
    for name, text in (
        (
            "qwen3-coder",
            f"<tool_call>\n<function=w>\n<parameter=c>\n{value}\n</parameter>\n</function>\n</tool_call>",
        ),
        ("glm", f"<tool_call>w\n<arg_key>c</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"),
    ):
        parsed = BY_NAME[name].parse(text)
        assert parsed.broken is None and [call.arguments for call in parsed.tool_calls] == [{"c": value}]


def test_text_beside_the_arguments_is_no_call() -> None:
    text = (
        "<tool_call>\n<function=w>\n<parameter=c>\na\n</parameter>\n<parameter=d>\nb</function>\n</tool_call>"
    )
    assert BY_NAME["qwen3-coder"].parse(text).broken == "bad arguments in a tool call"
