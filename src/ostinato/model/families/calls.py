"""The forms in which families write tool calls and reasoning, and the one parser that reads them all.

A form is a description: the text that begins the calls, the pattern of one call, the text that ends them,
and how the arguments are written. A new family is a new row of `FORMS`.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from ostinato.model.families.base import Parsed, ParsedCall, strict_json
from ostinato.model.families.hermes import parse_text

THINK = ("<think>", "</think>")
XML_PAIR = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL)
GLM_PAIR = re.compile(
    r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>(?=\s*(?:<arg_key>|\Z))", re.DOTALL
)
"""One argument. A value may hold the tag that ends it: it ends where another argument or nothing follows."""
HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?(?: to=(?P<early>\S+?))?<\|channel\|>(?P<channel>\w+)(?P<rest>[^<]*)"
    r"(?:<\|constrain\|>\w+)?<\|message\|>(?P<text>.*?)(?:<\|end\|>|\Z)",
    re.DOTALL,
)
TO = re.compile(r"to=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """How one family writes calls. `sign` is found in the templates of that family and in no other.

    >>> form_of("… '<function=' …").name
    'qwen3-coder'
    """

    name: str
    sign: str
    """The text by which the family's template is known."""
    marks: tuple[str, ...]
    """The texts with which calls may begin."""
    call: str = ""
    """The pattern of one call, with the groups `name` and `arguments`."""
    arguments: Literal["json", "xml", "glm"] = "json"
    """The way in which arguments are written."""
    ends: tuple[str, ...] = ()
    """The texts of which one may follow the last call."""
    controls: tuple[str, ...] = ()
    """The control texts that an answer may hold beside `marks`, `ends` and reasoning."""
    stops: tuple[str, ...] = ()
    """The control texts that end a completion, whether or not the checkpoint names them."""
    think: tuple[str, str] = THINK
    """The texts around reasoning."""

    @property
    def inner(self) -> frozenset[str]:
        """The control texts that an answer may hold."""
        return frozenset((*self.marks, *self.ends, *self.controls, *self.think))

    def parse(self, text: str, opened: bool = False) -> Parsed:
        """Read an assistant's text; `opened` tells that the prompt already began the reasoning."""
        if self.name == "gpt-oss":
            return _harmony(text)
        reasoning, text = self._split_reasoning(text, opened)
        parsed = parse_text(text) if self.name == "hermes" else self._calls(text)
        return Parsed(
            content=parsed.content, tool_calls=parsed.tool_calls, broken=parsed.broken, reasoning=reasoning
        )

    def _split_reasoning(self, text: str, opened: bool) -> tuple[str, str]:
        start, end = self.think
        head, found, rest = text.partition(start)
        if found and not head.strip():
            opened, text = True, rest
        if not opened:
            return "", text
        reasoning, closed, rest = text.partition(end)
        return (reasoning.strip("\n"), rest.lstrip("\n")) if closed else (reasoning.strip("\n"), "")

    def _calls(self, text: str) -> Parsed:
        starts = [at for mark in self.marks if (at := text.find(mark)) >= 0]
        if self.name == "llama3":
            starts = [0] if text.lstrip().startswith(self.marks) else []
        if not starts:
            return Parsed(content=text, tool_calls=(), broken=None)
        content, rest = text[: min(starts)], text[min(starts) :]
        calls: list[ParsedCall] = []
        pattern = re.compile(self.call, re.DOTALL)
        if self.name == "mistral" and (listed := _listed(rest.removeprefix(self.marks[0]))) is not None:
            return Parsed(content=content, tool_calls=listed, broken=None)
        rest = rest.removeprefix(self.controls[0]) if self.controls else rest
        while found := pattern.match(rest):
            call = self._call(found["name"].strip(), found["arguments"])
            if isinstance(call, str):
                return Parsed(content=text, tool_calls=(), broken=call)
            calls.append(call)
            rest = rest[found.end() :]
        for end in self.ends:
            rest = rest.strip().removeprefix(end)
        if not calls:
            return Parsed(content=text, tool_calls=(), broken="bad tool call")
        if rest.strip():
            return Parsed(content=text, tool_calls=(), broken="text after a tool call")
        return Parsed(content=content.rstrip("\n"), tool_calls=tuple(calls), broken=None)

    def _call(self, name: str, text: str) -> ParsedCall | str:
        """Return a call, or the fault in the text of its arguments."""
        if self.arguments == "json":
            value = _object(text)
            return (
                value if isinstance(value, str) else ParsedCall(name=name, arguments=value, raw=text.strip())
            )
        pair = XML_PAIR if self.arguments == "xml" else GLM_PAIR
        if pair.sub("", text).strip():
            return "bad arguments in a tool call"
        texts = dict(pair.findall(text))
        arguments = {key: _value(value) for key, value in texts.items()}
        raw = json.dumps(arguments, ensure_ascii=False)
        return ParsedCall(name=name, arguments=arguments, raw=raw, texts=texts)


DEEPSEEK = "<｜tool▁{}｜>"
FORMS = (
    CallForm(
        name="gpt-oss",
        sign="<|channel|>",
        marks=("<|channel|>", " to=functions"),
        controls=("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"),
        stops=("<|return|>", "<|call|>"),
        think=("", ""),
    ),
    CallForm(
        name="kimi-k2",
        sign="<|tool_calls_section_begin|>",
        marks=("<|tool_calls_section_begin|>",),
        call=r"\s*<\|tool_call_begin\|>(?:functions\.)?(?P<name>.*?):\d+\s*<\|tool_call_argument_begin\|>"
        r"(?P<arguments>.*?)<\|tool_call_end\|>",
        ends=("<|tool_calls_section_end|>",),
        controls=(
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
    ),
    CallForm(
        name="deepseek",
        sign=DEEPSEEK.format("calls▁begin"),
        marks=(DEEPSEEK.format("calls▁begin"),),
        call=r"\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>(?P<old>))?(?P<name>[^<\n]*?)"
        r"(?:<｜tool▁sep｜>|\n```json\n)(?P<arguments>.*?)(?:\n```)?<｜tool▁call▁end｜>",
        ends=(DEEPSEEK.format("calls▁end"),),
        controls=tuple(DEEPSEEK.format(x) for x in ("calls▁begin", "call▁begin", "sep", "call▁end")),
    ),
    CallForm(
        name="glm",
        sign="<arg_key>",
        marks=("<tool_call>",),
        call=r"\s*<tool_call>(?P<name>[^<\n]*)\n?(?P<arguments>.*?)</tool_call>(?=\s*(?:<tool_call>|\Z))",
        arguments="glm",
        controls=("", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    CallForm(
        name="qwen3-coder",
        sign="<function=",
        marks=("<tool_call>", "<function="),
        call=r"\s*(?:<tool_call>)?\s*<function=(?P<name>[^>\n]+)>(?P<arguments>.*?)</function>\s*(?:</tool_call>)?"
        r"(?=\s*(?:<tool_call>|<function=|\Z))",
        arguments="xml",
        controls=("", "</tool_call>"),
    ),
    CallForm(
        name="mistral",
        sign="[TOOL_CALLS]",
        marks=("[TOOL_CALLS]",),
        call=r"\s*\[TOOL_CALLS\](?P<name>[^\[\{]+)(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?(?P<arguments>\{.*?\})"
        r"(?=\s*(?:\[TOOL_CALLS\]|\Z))",
        controls=("", "[ARGS]", "[CALL_ID]"),
        think=("[THINK]", "[/THINK]"),
    ),
    CallForm(
        name="llama3",
        sign="<|start_header_id|>",
        marks=('{"name": ', '{"type": "function", "name": '),
        call=r'\s*\{(?:"type": "function", )?"name": "(?P<name>[^"]+)", '
        r'"parameters": (?P<arguments>\{.*\})\}',
        controls=("", "<|python_tag|>"),
    ),
)
HERMES = CallForm(name="hermes", sign="", marks=("<tool_call>",), controls=("</tool_call>",))


def form_of(template: str) -> CallForm:
    """Return the form in which the checkpoint with this chat template writes its calls."""
    return next((form for form in FORMS if form.sign in template), HERMES)


def _harmony(text: str) -> Parsed:
    """Read gpt-oss's channels: analysis is reasoning, final is content, commentary to a function a call."""
    said: dict[str, list[str]] = {"analysis": [], "final": [], "commentary": []}
    calls: list[ParsedCall] = []
    at = 0
    while at < len(text) and (found := HARMONY.match(text, at)):
        to = TO.search(found["rest"])
        recipient = found["early"] or (to[1] if to else "")
        if recipient.startswith("functions."):
            arguments = _object(found["text"])
            if isinstance(arguments, str):
                return Parsed(content=text, tool_calls=(), broken=arguments)
            name = recipient.removeprefix("functions.")
            calls.append(ParsedCall(name=name, arguments=arguments, raw=found["text"].strip()))
        else:
            said.setdefault(found["channel"], []).append(found["text"])
        at = found.end()
    if at < len(text):
        return Parsed(content=text, tool_calls=(), broken="text outside of a channel")
    content = "\n".join([*said["commentary"], *said["final"]])
    reasoning = "\n".join(said["analysis"])
    return Parsed(content=content, tool_calls=tuple(calls), broken=None, reasoning=reasoning)


def _listed(text: str) -> tuple[ParsedCall, ...] | None:
    """Return the calls of a JSON list, as older Mistral models write them; None for anything else."""
    try:
        listed = strict_json(text)
    except ValueError:
        return None
    if not isinstance(listed, list) or not listed:
        return None
    calls = []
    for one in listed:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            return None
        if not isinstance(one.get("arguments"), dict):
            return None
        raw = json.dumps(one["arguments"], ensure_ascii=False)
        calls.append(ParsedCall(name=one["name"], arguments=one["arguments"], raw=raw))
    return tuple(calls)


def _object(text: str) -> dict[str, Any] | str:
    """Return the object of the text, or the fault in it."""
    try:
        value = strict_json(text)
    except ValueError:
        return "bad JSON in a tool call"
    return value if isinstance(value, dict) else "arguments are not an object"


def _value(text: str) -> Any:
    """Return the JSON value that a text without quotes stands for; any other text is itself."""
    try:
        value = strict_json(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value
