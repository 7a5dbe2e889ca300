"""Token ids read back as people read them: messages, answers with their calls, and single tokens.

`model/transcript.py` finds the messages, at control tokens alone.
"""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ostinato.model.families import Parsed, Renderer, RenderError, load_renderer, parse_text
from ostinato.model.template import TOOLS_HEAD
from ostinato.model.tokenizer import IM_END, IM_START, Tokenizer, TokenizerError
from ostinato.model.transcript import blocks, tools_of

RESPONSE, END_RESPONSE = "<tool_response>\n", "\n</tool_response>"
OPEN_CALL = "<tool_call>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One message as it stands in a prompt.

    >>> Spoken(role="user", text="fix it").tools
    ()
    """

    role: str
    """Who speaks: `system`, `user`, `result` for the output of a tool, `assistant`, or `prompt` when the
    chat format is not known."""
    text: str
    tools: tuple[str, ...] = ()
    """The names of the tools that a system message offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    """The text of one token, and the call of the answer that it belongs to.

    >>> TokenText(text="def", call=None).call is None
    True
    """

    text: str
    call: int | None


class Lexicon:
    """The tokenizer of a record, and the chat format where it is known."""

    def __init__(self, tokenizer: Tokenizer, renderer: Renderer | None = None) -> None:
        self.tokenizer = tokenizer
        self._renderer = renderer
        self._chat = tokenizer.id_of(IM_START) is not None

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the tokenizer in a checkpoint's folder, and its chat format if it can be used.

        Raises TokenizerError, which names the file.
        """
        try:
            renderer = load_renderer(directory)
        except RenderError:  # the texts can be read without the template
            return cls(Tokenizer.load(directory))
        return cls(renderer.tokenizer, renderer)

    def messages(self, ids: Sequence[int]) -> list[Spoken]:
        """Return the messages in a prompt, or in the part of one that a turn added."""
        if not self._chat:
            text = self.tokenizer.decode(ids)
            return [Spoken(role="prompt", text=text)] if text else []
        found = blocks(self.tokenizer, ids)
        return [said for each in found if each.closed or each.text for said in _split(each.role, each.text)]

    def answer(self, ids: Sequence[int]) -> Parsed:
        """Return what the model said: its text, its calls, and what is broken about them."""
        if self._renderer is not None:
            return self._renderer.parse(ids)
        return parse_text(self.tokenizer.decode(ids).removesuffix(IM_END))

    def tokens(self, ids: Sequence[int]) -> list[TokenText]:
        """Return the text of each token; a letter of several tokens belongs to the last of them."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts = [decoder.decode(self.tokenizer.decode_bytes([id])) for id in ids]
        starts = [found.start() for found in re.finditer(re.escape(self._call_mark), "".join(texts))]
        tokens, at, call = [], 0, -1
        for text in texts:
            at += len(text)
            while call + 1 < len(starts) and starts[call + 1] < at:
                call += 1
            tokens.append(TokenText(text=text, call=call if call >= 0 else None))
        return tokens

    @property
    def _call_mark(self) -> str:
        marks = self._renderer.call_marks if self._renderer else ()
        return marks[0] if marks else OPEN_CALL


def _split(role: str, text: str) -> list[Spoken]:
    """Return a message, or each result where a user's message holds the outputs of tools."""
    if role == "user" and text.startswith(RESPONSE):
        outputs = text.removeprefix(RESPONSE).removesuffix(END_RESPONSE).split(f"{END_RESPONSE}\n{RESPONSE}")
        return [Spoken(role="result", text=output) for output in outputs]
    if role == "system":
        rules, offered, _ = text.partition(TOOLS_HEAD)
        return [Spoken(role=role, text=rules.rstrip() if offered else text, tools=_names(text))]
    return [Spoken(role=role or "prompt", text=text)]


def _names(text: str) -> tuple[str, ...]:
    try:
        schemas: list[dict[str, Any]] = tools_of(text)
        return tuple(str(schema["function"]["name"]) for schema in schemas)
    except (ValueError, KeyError, TypeError):
        return ()


__all__ = ["Lexicon", "Spoken", "TokenText", "TokenizerError"]
