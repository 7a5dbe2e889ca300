"""Covers model/families/chat_template.py and model/families/calls.py on templates of well-known checkpoints.

The package `trl` carries them, as `tests/real/install.py` installs it. Each is given a small tokenizer with
the control tokens that stand in it, since the vocabulary does not matter here.
"""

import json
import re
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.real import install
from tokenizers import AddedToken
from tokenizers import Tokenizer as Inner
from transformers import AutoTokenizer

from ostinato.model.families import Renderer, RenderError, load_renderer
from ostinato.model.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(install.missing() is not None, reason=install.missing() or ""),
]
ENDS = {
    "qwen2_5": ("<|im_end|>",),
    "qwen3": ("<|im_end|>",),
    "qwen3_instruct_2507": ("<|im_end|>",),
    "qwen3_5_think": ("<|im_end|>",),
    "qwen3_5_nothink": ("<|im_end|>",),
    "qwen3_8": ("<|im_end|>",),
    "nemotron_3_nano": ("<|im_end|>",),
    "llama3": ("<|eot_id|>",),
    "llama3_1": ("<|eot_id|>",),
    "llama3_2": ("<|eot_id|>",),
    "glm4moe": ("<|user|>",),
    "gptoss": ("<|return|>",),
    "deepseekv3": ("<｜end▁of▁sentence｜>",),
    "deepseek_r1_distill": ("<｜end▁of▁sentence｜>",),
    "gemma3": ("<end_of_turn>",),
    "phi3_5": ("<|endoftext|>",),
}
"""The templates, and the tokens with which their checkpoints end a completion."""
REFUSED = {
    "gemma4": "no control token ends an assistant's message",
    "lfm2_2_5": "tool calls in a form that is not known",
    "muse_glimmer": "tool calls in a form that is not known",
    "idefics3": "does not write what an assistant said",
}
CONTROL = re.compile(
    r"<\|\w+\|>|<｜[^｜<>]+｜>|</?(?:think|tool_call|tool_response|arg_key|arg_value)>|<\w+_of_turn>"
)
TAGS = re.compile(r"</?(?:think|tool_call|tool_response)>")
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "where"}}},
    },
}
CALL = {"id": "call00000", "type": "function", "function": {"name": "read", "arguments": {"path": "calc.py"}}}
SYSTEM, GO = {"role": "system", "content": "Be kind"}, {"role": "user", "content": "go"}
SAID = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call00000", "name": "read", "content": "def f(): pass"}


def checkpoint(name: str) -> Path:
    source = (install.TEMPLATES / f"{name}.jinja").read_text()
    directory, ends = Path(mkdtemp()), ENDS.get(name, ("<|im_end|>",))
    Tokenizer.train(["def alpha(a, b):\n    return a + b\n"] * 4, 300).save(directory)
    inner = Inner.from_file(str(directory / "tokenizer.json"))
    found = sorted({*CONTROL.findall(source), *ends, "<s>"})
    inner.add_special_tokens([text for text in found if not TAGS.fullmatch(text)])
    tags = [text for text in found if TAGS.fullmatch(text)]
    inner.add_tokens([AddedToken(text, normalized=False, special=False) for text in tags])
    inner.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": ends[0]}
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": source}))
    (directory / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [inner.token_to_id(text) for text in ends]})
    )
    return directory


@cache
def made(name: str) -> tuple[Renderer, Any]:
    directory = checkpoint(name)
    return load_renderer(directory), AutoTokenizer.from_pretrained(directory)


def written(theirs: Any, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    text = theirs.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("name", ENDS)
def test_prompts_are_the_templates_to_the_letter(name: str) -> None:
    renderer, theirs = made(name)
    more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
    conversations = [[GO], [SYSTEM, GO], [SYSTEM, GO, *more]]
    for messages in conversations:
        assert renderer.tokenizer.decode(renderer.render(messages)) == written(theirs, messages)
    if "Read a file." in written(theirs, [GO], [TOOL]):
        for messages in ([SYSTEM, GO], [SYSTEM, GO, SAID, RESULT]):
            ours = renderer.tokenizer.decode(renderer.render(messages, [TOOL]))
            assert ours == written(theirs, messages, [TOOL])


@pytest.mark.parametrize("name", ENDS)
def test_what_a_model_says_in_this_form_is_read_back(name: str) -> None:
    renderer, _ = made(name)
    called = renderer.parse(renderer.say(SAID))
    assert [(call.name, call.arguments) for call in called.tool_calls] == [("read", {"path": "calc.py"})]
    plain = renderer.parse(renderer.say({"role": "assistant", "content": "fine"}))
    assert (plain.content, plain.broken) == ("fine", None)


@pytest.mark.parametrize("name", ENDS)
@given(data=st.data())
def test_hostile_text_stays_text(name: str, data: st.DataObject) -> None:
    renderer, theirs = made(name)
    parts = st.sampled_from([*renderer.tokenizer.control_texts, "<|im_", "end|>", "<", "a", " ", "é"])
    asked = "x" + data.draw(st.lists(parts, max_size=5).map("".join))
    messages = [SYSTEM, {"role": "user", "content": asked}]
    ids = renderer.render(messages)
    control = renderer.tokenizer.control_ids
    honest = renderer.render([SYSTEM, {"role": "user", "content": "x"}])
    assert [i for i in ids if i in control] == [i for i in honest if i in control]
    assert renderer.tokenizer.decode(ids) == written(theirs, messages)


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_cannot_be_served_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(RenderError, match=REFUSED[name]):
        load_renderer(checkpoint(name))
