"""The words of a profile for the teacher, who knows the canonical tools alone.

::

    teacher ─► canonical call ─► Wording.worded ─► call in the words of the profile ─► harness
    teacher ◄── canonical messages ◄── Wording.meant ◄── messages in the words of the profile ◄──┘
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.harness.profiles.profile import Profile
from ostinato.harness.tools.apply_patch import ANCHOR, BEGIN, END, ChangeKind
from ostinato.model.families import ParsedCall, assistant_message, parse_text, skeletons
from ostinato.model.families.base import Message
from ostinato.model.families.hermes import CLOSE

HEAD, OLD, NEW, TAIL = f"{BEGIN}\n{ChangeKind.UPDATE}", f"\n{ANCHOR}\n", "\n+", f"\n{END}"
"""The literal text of a patch: before the path, before the old lines, before a new one, and at the end."""
Arguments = Mapping[str, Any]


def literals(profile: Profile) -> list[str]:
    """Return the texts that deserve one token each for a model that is taught in this profile."""
    written = skeletons(profile.system, profile.tools)
    if any(offer.tool == "apply_patch" for offer in profile.offers):
        written += [_as_json(each) for each in (HEAD, f"{OLD}-", NEW, TAIL)]
    return written


class Wording:
    """The words of one profile, over any number of sessions.

    >>> from ostinato.harness.profiles.profile import PROFILES
    >>> Wording(PROFILES["codex"]).call("read", {"path": "calc.py"})
    ('shell', {'command': ['cat', 'calc.py']})
    """

    def __init__(self, profile: Profile) -> None:
        self._offers = {offer.tool: offer for offer in profile.offers}
        self._meant: dict[tuple[str, str], tuple[str, str]] = {}
        """Each call that was written, with the canonical one that it stands for: names and JSON."""

    def worded(self, text: str) -> Message:
        """Return the assistant's message for a text of the teacher.

        A call that cannot be read stays one, in the words of the profile. A question is the last message
        where the profile has no tool for it.
        """
        parsed = parse_text(text)
        if parsed.broken is not None:
            return self._broken(text)
        asked = [call.arguments["question"] for call in parsed.tool_calls if not self._reaches(call.name)]
        if asked:
            return {"role": "assistant", "content": "\n".join([*filter(None, [parsed.content]), *asked])}
        message = assistant_message(parsed)
        for wire, call in zip(message.get("tool_calls", ()), parsed.tool_calls, strict=True):
            wire["function"] = self._function(call)
        return message

    def meant(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with the calls that `worded` wrote in canonical words again."""
        return [self._canonical(message) for message in messages]

    def call(self, name: str, arguments: Arguments) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of a canonical call in this dialect; raises KeyError for one without.

        Where the profile has no tool to read, list or edit, the shell and patches stand in.
        """
        if name in self._offers:
            return self._offers[name].name, self._offers[name].write(arguments)
        if name == "edit":
            return self.call("apply_patch", {"patch": _patch(**arguments)})
        program = {"read": "cat", "ls": "ls"}[name]
        return self.call("bash", {"command": f"{program} {shlex.quote(arguments['path'])}"})

    def _reaches(self, name: str) -> bool:
        return name in self._offers or name != "ask_user"

    def _function(self, call: ParsedCall) -> dict[str, str]:
        name, arguments = self.call(call.name, call.arguments)
        raw = json.dumps(arguments, ensure_ascii=False)
        self._meant[name, raw] = call.name, call.raw
        return {"name": name, "arguments": raw}

    def _broken(self, text: str) -> Message:
        """Return a call that lacks its last brace, as the teacher's do, in this dialect."""
        whole = parse_text(text.replace(CLOSE, f"}}{CLOSE}"))
        if whole.broken is None and len(whole.tool_calls) == 1:
            name, arguments = self.call(whole.tool_calls[0].name, whole.tool_calls[0].arguments)
            body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            text = f"<tool_call>\n{body[:-1]}{CLOSE}"
        return {"role": "assistant", "content": text}

    def _canonical(self, message: Message) -> Message:
        if not message.get("tool_calls"):
            return message
        calls = [{**call, "function": self._named(call["function"])} for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}

    def _named(self, function: Mapping[str, str]) -> dict[str, str]:
        written = function["name"], function["arguments"]
        name, arguments = self._meant.get(written, written)
        return {"name": name, "arguments": arguments}


def _patch(path: str, old_string: str, new_string: str) -> str:
    """Return the patch that replaces whole lines."""
    old, new = (text.removesuffix("\n").split("\n") for text in (old_string, new_string))
    lines = "".join(f"\n{mark}{line}" for mark, side in (("-", old), ("+", new)) for line in side)
    return f"{HEAD}{path}\n{ANCHOR}{lines}{TAIL}"


def _as_json(text: str) -> str:
    return json.dumps(text)[1:-1]
