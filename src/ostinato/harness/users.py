"""The users of an agent, who answer its questions and permit what no rule allows: a person, a script, or
nobody.
"""

import unicodedata
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rich.console import Console

from ostinato.harness.errors import UserAborted
from ostinato.harness.lines import Lines
from ostinato.harness.permissions.rules import Rule


class Grant(StrEnum):
    """The answer to a request for permission."""

    ONCE = "once"
    ALWAYS = "always"
    """Permits exactly the rules that were shown, for this session."""
    NO = "no"
    ABSENT = "absent"
    """Nobody was there to ask, so the call may not run."""

    @property
    def permits(self) -> bool:
        return self in {Grant.ONCE, Grant.ALWAYS}


WORDS = {"y": Grant.ONCE, "yes": Grant.ONCE, "once": Grant.ONCE, "a": Grant.ALWAYS, "always": Grant.ALWAYS}
WORDS |= {"n": Grant.NO, "no": Grant.NO, "": Grant.NO}
CHOICES = "[y] once  [a] always  [n] no, then Enter"
UNCLEAR = "Nothing was permitted: type the letter y, a or n alone, then Enter."


def grant_of(line: str) -> Grant | None:
    """Return the grant of a typed line; None for anything but the exact letter or word.

    >>> grant_of(" Y "), grant_of("are you sure?")
    (<Grant.ONCE: 'once'>, None)
    """
    return WORDS.get(line.strip().lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """A call that needs permission.

    >>> PermissionRequest(call_id="c0", tool="bash", arguments={}, asks=("make",), grants=()).reason
    ''
    """

    call_id: str
    tool: str
    """The canonical name of the tool."""
    arguments: Mapping[str, Any]
    asks: tuple[str, ...]
    """The parts of the call that no rule allows."""
    grants: tuple[Rule, ...]
    """The rules that "always" adds."""
    reason: str = ""
    """The reason why the call could not be split into parts; empty when it could."""


class Answering(Protocol):
    async def answer(self, question: str) -> str:
        """Return the user's words; raises UserAborted when they decline."""
        ...


class User(Answering, Protocol):
    async def permit(self, request: PermissionRequest) -> Grant:
        """Decide whether the call may run."""
        ...


class SilentUser:
    """A user who is not there: the agent decides for itself, and nothing is permitted."""

    async def answer(self, question: str) -> str:
        return "no answer, decide yourself"

    async def permit(self, request: PermissionRequest) -> Grant:
        return Grant.ABSENT


class Permitting:
    """A user who answers as another one does and permits every request; what a rule denies stays denied."""

    def __init__(self, user: Answering) -> None:
        self._user = user

    async def answer(self, question: str) -> str:
        return await self._user.answer(question)

    async def permit(self, request: PermissionRequest) -> Grant:
        return Grant.ONCE


class ScriptedUser:
    """A user with prepared answers, who keeps the questions and declines when the answers run out."""

    def __init__(self, answers: Iterable[str], grants: Iterable[Grant] = ()) -> None:
        self._answers = deque(answers)
        self._grants = deque(grants)
        self.questions: list[str] = []
        self.requests: list[PermissionRequest] = []

    async def answer(self, question: str) -> str:
        self.questions.append(question)
        if not self._answers:
            raise UserAborted("the user did not answer")
        return self._answers.popleft()

    async def permit(self, request: PermissionRequest) -> Grant:
        self.requests.append(request)
        return self._grants.popleft() if self._grants else Grant.NO


class TerminalUser:
    """A person who types lines. An empty line, or the end of input, declines."""

    def __init__(self, console: Console, lines: Lines) -> None:
        self._console = console
        self._lines = lines

    async def answer(self, question: str) -> str:
        self._console.print(f"\n? {question}", style="bold", markup=False)
        text = await self._line("> ")
        if not text:
            raise UserAborted("the user did not answer")
        return text

    async def permit(self, request: PermissionRequest) -> Grant:
        self._console.print("\n".join(question_of(request)), style="yellow", markup=False, soft_wrap=True)
        while (grant := grant_of(await self._line(f"{CHOICES} > "))) is None:
            self._console.print(UNCLEAR, style="yellow", markup=False)
        return grant

    async def _line(self, prompt: str) -> str:
        self._console.print(prompt, end="", markup=False)
        self._console.file.flush()
        return (await self._lines.next() or "").strip()


_IGNORED = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800)),
    *((0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)),
)
BLANK = frozenset(chr(code) for first, last in _IGNORED for code in range(first, last + 1))
"""Letters, marks and symbols that show nothing: Unicode's Default_Ignorable_Code_Point, and U+2800."""


def visible(text: str) -> str:
    """Return `text` with every character spelled out that moves a cursor, is not seen, or looks like a blank.

    So nothing can hide a part, and what is read is what is there. Blanks, tabs and newlines stay.

    >>> visible("rm x\\r\\x1b[2Kls")
    'rm x\\\\r\\\\x1b[2Kls'
    """
    hidden = (c for c in set(text) if c not in "\n\t " and (unicodedata.category(c)[0] in "CZ" or c in BLANK))
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in hidden})


def question_of(request: PermissionRequest) -> list[str]:
    """Return the request in words: the parts that need permission, and exactly the rules that "always" would
    add.
    """
    return visible("\n".join(_question(request))).split("\n")


def _question(request: PermissionRequest) -> list[str]:
    why = [f"  (read as a whole: {request.reason})"] if request.reason else []
    asked = [f"  {line}" for text in request.asks for line in text.split("\n")]
    added = [f"  {rule}" for rule in request.grants]
    return [f"May it use {request.tool}?", *asked, *why, "always adds, for this session:", *added]
