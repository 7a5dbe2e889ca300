"""A workbench that runs the teacher's tool calls on files in memory and imitates pytest's short output."""

import builtins
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any

import pytest

from ostinato.tasks.pebble import Pebble
from ostinato.tasks.teaching.demonstrate import Teacher

ASSERTION = re.compile(r"def test_(\w+)\(\):\n    assert (.+) == (.+)\n")
SUMMARY = " short test summary info ".center(80, "=")
CALL = re.compile(r"(?:\w+\(.*\)\n)?<tool_call>\n(.*)\n</tool_call>")


@dataclass
class Workbench:
    """One session: its files, its messages and its calls so far."""

    pebble: Pebble
    reply: str = ""
    files: dict[str, str] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    broken: int = 0
    slips: int = 0

    def __post_init__(self) -> None:
        self.files = dict(self.pebble.files)
        self.messages = [
            {"role": "system", "content": "s"},
            {"role": "user", "content": self.pebble.instruction},
        ]

    def run(self, name: str, arguments: dict[str, str]) -> str:
        self.calls.append(name)
        if name == "read":
            return self.files[arguments["path"]].removesuffix("\n")
        if name == "edit":
            text = self.files[arguments["path"]]
            assert text.count(arguments["old_string"]) <= 1, (arguments, text)
            if arguments["old_string"] not in text:
                self.slips += 1
                return "error: old_string not found"
            assert arguments["old_string"] != arguments["new_string"]
            self.files[arguments["path"]] = text.replace(arguments["old_string"], arguments["new_string"])
            return "ok"
        if name == "bash":
            assert arguments == {"command": "pytest"}
            return self.pytest()
        if name == "ls":
            return "\n".join(sorted(self.files))
        assert name == "ask_user"
        return str(self.pebble.intent["reply"])

    def pytest(self) -> str:
        marks, failed = "", []
        for path in sorted(self.files):
            if path.startswith("test_"):
                scope: dict[str, Any] = {}
                exec(self.files[path.removeprefix("test_")], scope)
                for name, call, wanted in ASSERTION.findall(self.files[path]):
                    got = eval(call, scope)
                    marks += "." if got == eval(wanted) else "F"
                    if got != eval(wanted):
                        failed.append(f"FAILED {path}::test_{name} - assert {got!r} == {wanted}")
        return "\n".join([marks, *([SUMMARY, *failed] if failed else [])])

    def take(self, text: str) -> bool:
        """Take one assistant text; return whether the session goes on."""
        match = CALL.fullmatch(text)
        if not match:
            self.messages.append({"role": "assistant", "content": text})
            return False
        try:
            call = json.loads(match[1])
        except json.JSONDecodeError:
            self.broken += 1
            self.messages += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": "error: bad JSON"},
            ]
            return True
        number = f"call-{len(self.messages)}"
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        tool_call = {"id": number, "type": "function", "function": function}
        result = self.run(call["name"], call["arguments"])
        self.messages += [
            {"role": "assistant", "content": None, "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": number, "content": result},
        ]
        return True

    @property
    def final(self) -> str:
        return str(self.messages[-1]["content"])

    @property
    def tampered(self) -> bool:
        return any(self.files[path] != self.pebble.files[path] for path in self.pebble.protected)

    @property
    def solved(self) -> bool:
        """True when the hidden assertions hold, run for real in this process."""
        modules = {}
        for path in self.pebble.paths:
            module = ModuleType(path.removesuffix(".py"))
            exec(self.files[path], module.__dict__)
            modules[module.__name__] = module
        own = {**vars(builtins), "__import__": lambda name, *_: modules[name]}
        scope: dict[str, Any] = {"__builtins__": own}
        try:
            exec(self.pebble.hidden, scope)
            for test in self.pebble.test_ids:
                scope[test.split("::")[1]]()
        except (AssertionError, ImportError, NameError):
            return False
        return not self.tampered


Play = Callable[[Pebble, int], Workbench]


@pytest.fixture
def bench() -> type[Workbench]:
    return Workbench


@pytest.fixture
def play() -> Play:
    """Return a function that plays one teacher session to its end and returns its workbench."""

    def run(pebble: Pebble, seed: int) -> Workbench:
        workbench = Workbench(pebble)
        teacher = Teacher(pebble, Random(seed))
        while workbench.take(teacher.act(workbench.messages)):
            assert len(workbench.messages) < 40
        return workbench

    return run
