"""Checkpoint directories with a small tokenizer and a chat template, for the tests of this folder."""

import json
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Inner

from ostinato.model.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nBe kind<|im_end|>\n{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
THINKING = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and m.reasoning_content and loop.last %}"
    "{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}"
    "{{- m.content | trim }}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
ROLES = (
    "{{- bos_token }}{%- if tools %}"
    "{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
    "{%- for m in messages %}{%- if m.role == 'assistant' %}{{- m.content }}"
    "{%- for call in m.tool_calls or [] %}"
    "{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}{%- endfor %}"
    "{{- eos_token }}{%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
    "{%- else %}{{- '[INST]' + m.content + '[/INST]' }}{%- endif %}{%- endfor %}"
)
TAGS = [
    "<think>",
    "</think>",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
]
SPECIAL = ["<s>", "</s>"]


def checkpoint(directory: Path, template: str | None, eos: str = "<|im_end|>") -> Path:
    """Write a tokenizer with the control tokens of several families, and the template."""
    Tokenizer.train(["def alpha(a, b):\n    return a + b\n"] * 4, 300).save(directory)
    inner = Inner.from_file(str(directory / "tokenizer.json"))
    inner.add_special_tokens(SPECIAL)
    inner.add_tokens([AddedToken(text, normalized=False, special=False) for text in TAGS])
    inner.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": eos}
    config |= {"chat_template": template} if template is not None else {}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
