"""The renderer of any checkpoint that brings a chat template: its own Jinja text writes every prompt.

The template decides what is written; this file decides what may become a control token. A text of a message
that holds control text, or a part of it, is replaced by a *sentinel* before the template runs. What the
template writes around the sentinels is encoded as control text, and what stands for them as untrusted text::

    messages ─► guard: hostile texts become sentinels ─► template ─► control │ untrusted │ control ─► ids

A template sees the sentinel, so it cannot be led by control text in a message (such as `</think>`).
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ostinato.model.families.base import Message, Parsed, RenderError, strict_json, text_of
from ostinato.model.families.calls import form_of
from ostinato.model.families.hermes import in_hermes_way
from ostinato.model.families.jinja_template import ChatTemplate
from ostinato.model.tokenizer import Tokenizer

Texts = Callable[[str], str]
LEFT, RIGHT = "\ue000", "\ue001"
SENTINEL = re.compile(rf'{LEFT}(\\?)"(\d+){RIGHT}')
"""A sentinel; the backslash is there when the template wrote it as JSON."""
ANCHOR = "ostinato-anchor"
PROBE: Message = {"role": "user", "content": "ostinato-question"}
TOOL = {
    "type": "function",
    "function": {
        "name": "ostinato_tool",
        "description": "ostinato-tool",
        "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "a"}}},
    },
}
MOST_TEXTS = 256


class TemplateRenderer:
    """The conversion of messages to ids and back, in the text of a checkpoint's own chat template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, ends: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._controls = tokenizer.control_texts
        self._encode_control = lru_cache(MOST_TEXTS)(lambda text: tuple(tokenizer.encode(text)))
        self._offers_tools = self._writes_tools()
        self._form = form_of(template.source if self._offers_tools else "")
        self._id_of = self._form_of_ids() if self._offers_tools else str
        self._end = self._turn_end()
        end = tokenizer.id_of(self._end)
        own = () if self._end in self._form.inner or end is None else (end,)
        usual = [i for text in self._form.stops if (i := tokenizer.id_of(text)) is not None]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([*own, *ends, *usual]))
        if not self.stop_ids:
            raise RenderError("the checkpoint names no token that ends a completion: set eos_token_id")
        self.call_marks: tuple[str, ...] = self._form.marks
        self._stop_texts = [tokenizer.decode([i]) for i in self.stop_ids]
        self.think = self._form.think
        self.opened = self._header_opens_reasoning()
        self._forgets, self._drops = self._forgets_reasoning()
        self._prove()

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the whole prompt, which ends in the assistant's header."""
        texts: list[str] = []
        return self._encode(self._write(messages, tools, texts, header=True), texts)

    def extend(self, messages: Sequence[Message], *, stopped: bool = True) -> list[int]:
        """Return the ids after a completion: the new messages and the assistant's header.

        `stopped` tells whether the completion ended in a stop token; if it was cut, the end of the turn is
        added here.
        """
        texts: list[str] = []
        return self._encode(self._added(messages, texts, stopped=stopped), texts)

    def _added(self, messages: Sequence[Message], texts: list[str], *, stopped: bool) -> str:
        text = self._write([PROBE, _answer(messages), *messages], (), texts, header=True)
        after = text.rindex(ANCHOR) + len(ANCHOR)
        found = [(text.find(end, after), end) for end in (self._end, *self._stop_texts)]
        at, end = min((one for one in found if one[0] >= 0), default=(-1, ""))
        if at < 0:
            raise RenderError("the chat template writes no end of the assistant's message here")
        return text[at + len(end) if stopped else at :]

    def continues(
        self, messages: Sequence[Message], known: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Return whether the template writes what the last answer was sampled upon as it did then, and after
        the answer what `extend` adds.

        A template may put the tools into the newest question, shorten older results or count the messages:
        only the whole history shows it.
        """
        new = messages[known:]
        if self._drops or (self._forgets and any(message["role"] == "user" for message in new)):
            return False
        texts: list[str] = []
        try:
            added = _plain(self._added(new, texts, stopped=True), texts)
            whole = self._text(messages, tools, header=True)
            answered = self._text(messages[:known], tools, header=False)
            # Some templates write an end of all, others a start of reasoning, after what is still the last.
            asked = [self._text(messages[: known - 1], tools, header=h).rstrip() for h in (False, True)]
        except RenderError:
            return False  # rendering the whole says why
        kept = whole.removesuffix(added).rstrip()
        return whole.endswith(added) and answered.startswith(kept) and any(map(kept.startswith, asked))

    def parse(self, completion_ids: Sequence[int]) -> Parsed:
        """Read a completion, its stop token included."""
        stopped = bool(completion_ids) and completion_ids[-1] in self.stop_ids
        body = completion_ids[:-1] if stopped else completion_ids
        parsed = self.parse_text(self.tokenizer.decode(body))
        if not stopped:
            return self._broken(parsed, "no end of turn")
        allowed = {self.tokenizer.id_of(text) for text in self._form.inner}
        if any(i in self.tokenizer.control_ids and i not in allowed for i in body):
            return self._broken(parsed, "control token in a message")
        return parsed

    def parse_text(self, text: str) -> Parsed:
        """Read an assistant's text without its stop token."""
        return self._form.parse(text, self.opened)

    def say(self, message: Message) -> list[int]:
        """Return the completion with which the model would say `message`, its stop token included."""
        texts: list[str] = []
        header = self._write([PROBE], (), texts, header=True)
        whole = self._write([PROBE, message], (), texts, header=False)
        shared = next(
            (i for i, (a, b) in enumerate(zip(header, whole, strict=False)) if a != b),
            min(len(header), len(whole)),
        )
        opened = header.rstrip().removesuffix(self._form.think[0] or "\0")
        if len(opened) < shared < len(header.rstrip()):
            shared = len(opened)  # the answer only begins like the tag, as `<tool_call>` does
        missing = header[shared:].strip()
        if missing not in ("", self._form.think[0]):
            raise RenderError(f"the chat template writes no answer after its own header {header[-40:]!r}")
        start = f"\n{self._form.think[1]}\n\n" if missing else ""
        at, stop = self._end_of_answer(whole, shared)
        body = whole[shared : at if at >= 0 else len(whole)]
        end_id = self.tokenizer.id_of(stop)
        return [
            *self._encode(start + body, texts),
            end_id if end_id is not None and end_id in self.stop_ids else self.stop_ids[0],
        ]

    def _end_of_answer(self, whole: str, start: int) -> tuple[int, str]:
        """Return where the answer from `start` on ends, and with which control text; -1 for nowhere."""
        if self._end not in self._form.inner and (at := whole.find(self._end, start)) >= 0:
            return at, self._end
        return max((whole.rfind(end, start), end) for end in (self._end, *self._stop_texts))

    @staticmethod
    def _broken(parsed: Parsed, fault: str) -> Parsed:
        return Parsed(content=parsed.content, tool_calls=(), broken=fault, reasoning=parsed.reasoning)

    def _write(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        texts: list[str],
        *,
        header: bool,
    ) -> str:
        """Return the template's text, in which sentinels stand for hostile texts; these go to `texts`."""

        def guard(text: str) -> str:
            core = text.strip()
            if not core or not self._hostile(core):
                return text
            lead = text[: text.index(core)]
            texts.append(core)
            # White space stays outside, since templates trim it.
            return f'{lead}{LEFT}"{len(texts) - 1}{RIGHT}{text[len(lead) + len(core) :]}'

        if not self._offers_tools:
            messages, tools = in_hermes_way(messages, tools), ()
        plain = [_guarded_message(self._with_ids(message), guard) for message in _with_names(messages)]
        return self._template.write(plain, [_guarded(tool, guard) for tool in tools], header=header)

    def _hostile(self, text: str) -> bool:
        """Return whether control text, or a part that its surroundings could complete, is in `text`.

        Templates look for the marks of reasoning whether or not the tokenizer has tokens for them.
        """
        marks = (LEFT, RIGHT, *filter(None, self._form.think))
        if any(mark in text for mark in marks) or self.tokenizer.holds_control(text):
            return True
        return any(
            text in control
            or any(
                text.endswith(control[:n]) or text.startswith(control[-n:]) for n in range(1, len(control))
            )
            for control in self._controls
        )

    def _encode(self, text: str, texts: Sequence[str]) -> list[int]:
        ids: list[int] = []
        at = 0
        for found in SENTINEL.finditer(text):
            ids += self._encode_control(text[at : found.start()])
            hostile = texts[int(found[2])]
            if found[1]:
                hostile = json.dumps(hostile, ensure_ascii=False)[1:-1]
            ids += self.tokenizer.encode_untrusted(hostile)
            at = found.end()
        return [*ids, *self._encode_control(text[at:])]

    def _with_ids(self, message: Message) -> dict[str, Any]:
        """Return the message with the ids of calls and results in the form that the template takes."""
        made = dict(message)
        if made.get("tool_calls"):
            calls = made["tool_calls"]
            made["tool_calls"] = [
                {**call, "id": self._id_of(str(call.get("id", "call_0")))} for call in calls
            ]
        if isinstance(made.get("tool_call_id"), str):
            made["tool_call_id"] = self._id_of(made["tool_call_id"])
        return made

    def _form_of_ids(self) -> Callable[[str], str]:
        """Return how ids are written: as they came, else as the nine letters and digits that some ask for."""
        for form in (str, _nine):
            self._id_of = form
            try:
                self._write([PROBE, *_round("call_0_0")], [TOOL], [], header=True)
            except RenderError as error:
                refusal = error
            else:
                return form
        raise RenderError(f"its chat template is refused: it takes no call with its result ({refusal})")

    def _text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, header: bool) -> str:
        texts: list[str] = []
        return _plain(self._write(messages, tools, texts, header=header), texts)

    def _writes_tools(self) -> bool:
        try:
            return "ostinato_tool" in self._template.write([PROBE], [TOOL], header=True)
        except RenderError:
            return False

    def _turn_end(self) -> str:
        """Return the control text that ends an assistant's message in a history."""
        try:
            text = self._template.write([PROBE, _answer([]), PROBE], (), header=True)
        except RenderError as error:
            raise RenderError(f"its chat template is refused: {error}") from error
        if ANCHOR not in text:
            raise RenderError("its chat template is refused: it does not write what an assistant said")
        found = self.tokenizer.first_control(text[text.index(ANCHOR) :])
        if found is None:
            raise RenderError(
                "its chat template is refused: no control token ends an assistant's message, so that a text "
                "in the message could end it"
            )
        return found

    def _header_opens_reasoning(self) -> bool:
        header = self._template.write([PROBE], (), header=True).rstrip()
        return bool(self._form.think[0]) and header.endswith(self._form.think[0])

    def _forgets_reasoning(self) -> tuple[bool, bool]:
        """Return whether reasoning is written otherwise once a person has answered, and whether each answer
        is sampled with reasoning that no history has."""
        answer = {**_answer([]), "reasoning_content": "ostinato-thought"}
        last = self._template.write([PROBE, answer], (), header=False)
        later = self._template.write([PROBE, answer, PROBE], (), header=False)
        is_written = last.count("ostinato-thought")
        return later.count("ostinato-thought") < is_written, self.opened and not is_written

    def _prove(self) -> None:
        """Raise RenderError unless hostile text stays text, a session only grows, and calls can be read."""
        call = {"type": "function", "function": {"name": "ostinato_tool", "arguments": '{"a": "b"}'}}
        said = {"role": "assistant", "content": "", "tool_calls": [{"id": "ostinato1", **call}]}
        if [read.arguments for read in self.parse(self.say(said)).tool_calls] != [{"a": "b"}]:
            raise RenderError(
                "its chat template is refused: it writes tool calls in a form that is not known"
            )
        hostile = "".join(self._controls)
        for content in ("ostinato-honest", hostile):
            again = [{"role": "user", "content": content}]
            ids = self.render([PROBE, _answer([]), *again])
            added = self.extend(again)
            if self.tokenizer.decode(ids[len(ids) - len(added) :]) != self.tokenizer.decode(added):
                raise RenderError("its chat template is refused: a new message changes more than the end")
            if content not in self.tokenizer.decode(added):
                raise RenderError("its chat template is refused: it does not write a person's message whole")
            control = [i for i in added if i in self.tokenizer.control_ids]
            if content != hostile:
                honest = control
            elif control != honest:
                raise RenderError("its chat template is refused: text of a person becomes a control token")


def _answer(following: Sequence[Message]) -> dict[str, Any]:
    """Return a short answer, with the calls that the tool messages in `following` belong to."""
    results = []
    for message in following:
        if message["role"] != "tool":
            break
        results.append(message)
    if not results:
        return {"role": "assistant", "content": ANCHOR}
    calls = [
        {
            "id": str(message.get("tool_call_id", "call_0")),
            "type": "function",
            "function": {"name": str(message.get("name", "tool")), "arguments": {"a": ANCHOR}},
        }
        for message in results
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _round(id_: str) -> list[Message]:
    """Return a call and its result."""
    function = {"name": "ostinato_tool", "arguments": {"a": f"ostinato {id_}"}}
    call = {"id": id_, "type": "function", "function": function}
    result = {
        "role": "tool",
        "tool_call_id": id_,
        "name": "ostinato_tool",
        "content": f"ostinato-result {id_}",
    }
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, result]


def _with_names(messages: Sequence[Message]) -> list[Message]:
    """Return the messages, the results with the names of their calls, which few clients send and some
    templates write."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    names = {call.get("id"): call.get("function", call)["name"] for call in calls}
    return [
        {"name": names[message.get("tool_call_id")], **message}
        if message["role"] == "tool" and message.get("tool_call_id") in names
        else message
        for message in messages
    ]


def _nine(id_: str) -> str:
    """Return nine letters and digits that stand for an id."""
    return hashlib.blake2b(id_.encode(errors="surrogatepass"), digest_size=5).hexdigest()[:9]


def _plain(text: str, texts: Sequence[str]) -> str:
    """Return what the template wrote with the hostile texts in their places."""
    return SENTINEL.sub(lambda found: texts[int(found[2])], text)


def _guarded_message(message: Message, guard: Texts) -> dict[str, Any]:
    """Return the message in the form that templates read: content as text, arguments as values."""
    if message["role"] not in ("system", "user", "assistant", "tool"):
        raise RenderError(f"a message has the role {message['role']!r}: use system, user, assistant or tool")
    made = {**message, "content": guard(text_of(message))}
    if isinstance(made.get("reasoning_content"), str):
        made["reasoning_content"] = guard(made["reasoning_content"])
    for key in ("name", "tool_call_id"):
        if isinstance(made.get(key), str):
            made[key] = guard(made[key])
    if message.get("tool_calls"):
        made["tool_calls"] = [_guarded_call(call, guard) for call in message["tool_calls"]]
    return made


def _guarded_call(call: Mapping[str, Any], guard: Texts) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = strict_json(arguments)
        except ValueError as error:
            raise RenderError(
                f"the arguments of a call of {function['name']} are no JSON: {error}"
            ) from error
    named = {"name": guard(function["name"]), "arguments": _guarded(arguments, guard)}
    return {"id": guard(str(call.get("id", "call_0"))), "type": "function", "function": named}


def _guarded(value: Any, guard: Texts) -> Any:
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, Mapping):
        return {guard(str(key)): _guarded(one, guard) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_guarded(one, guard) for one in value]
    return value
