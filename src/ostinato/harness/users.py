"""The users of an agent, who answer its questions and permit what no rule allows: a person, a script, or
nobody.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rich.console import Console

from ostinato.harness.errors import UserAborted
from ostinato.harness.lines import Lines
from ostinato.harness.permissions.rules import Rule
from ostinato.harness.tools.names import presentable


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAnswer:
    """A grant and, beside a "no", the words that the model reads with it.

    >>> PermissionAnswer(grant=Grant.NO, words="use pytest instead").grant.permits
    False
    """

    grant: Grant
    words: str = ""


GRANTS = {"y": Grant.ONCE, "yes": Grant.ONCE, "once": Grant.ONCE, "a": Grant.ALWAYS, "always": Grant.ALWAYS}
GRANTS |= {"n": Grant.NO, "no": Grant.NO, "": Grant.NO}
DECLINED = re.compile(r"no?[\s,.:;!-]+(.*)", re.IGNORECASE | re.DOTALL)
CHOICES = "[y] once  [a] always  [n] no, or n and what to do instead; then Enter"
UNCLEAR = "Nothing was permitted: type the letter y, a or n alone, or n and words for the model, then Enter."


def permission_of(line: str) -> PermissionAnswer | None:
    """Return the decision of a typed line; None for anything but the exact letter or word, and a "no" that
    words follow.

    >>> permission_of(" Y "), permission_of("are you sure?")
    (PermissionAnswer(grant=<Grant.ONCE: 'once'>, words=''), None)
    >>> permission_of("n, use pytest instead").words
    'use pytest instead'
    """
    line = line.strip()
    if (grant := GRANTS.get(line.lower())) is not None:
        return PermissionAnswer(grant=grant)
    declined = DECLINED.fullmatch(line)
    return PermissionAnswer(grant=Grant.NO, words=declined[1]) if declined else None


def choice_of(line: str, options: Sequence[str]) -> str:
    """Return the answer of a typed line: the option of that number, or the line itself.

    >>> choice_of("2", ["mean", "median"]), choice_of("neither", ["mean", "median"])
    ('median', 'neither')
    """
    line = line.strip()
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    return line if line in options else numbered.get(line, line)


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
    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        """Return the user's words, which may be one of the options; raises UserAborted when they decline."""
        ...


class User(Answering, Protocol):
    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        """Decide whether the call may run."""
        ...


class SilentUser:
    """A user who is not there: the agent decides for itself, and nothing is permitted."""

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        return "no answer, decide yourself"

    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        return PermissionAnswer(grant=Grant.ABSENT)


class Permitting:
    """A user who answers as another one does and permits every request; what a rule denies stays denied."""

    def __init__(self, user: Answering) -> None:
        self._user = user

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        return await self._user.answer(question, options)

    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        return PermissionAnswer(grant=Grant.ONCE)


class ScriptedUser:
    """A user with prepared answers, who keeps the questions and declines when the answers run out."""

    def __init__(self, answers: Iterable[str], decisions: Iterable[Grant | PermissionAnswer] = ()) -> None:
        self._answers = deque(answers)
        self._decisions = deque(decisions)
        self.questions: list[str] = []
        self.requests: list[PermissionRequest] = []

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        self.questions.append(f"{question} ({' / '.join(options)})" if options else question)
        if not self._answers:
            raise UserAborted("the user did not answer")
        return self._answers.popleft()

    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        self.requests.append(request)
        decided = self._decisions.popleft() if self._decisions else Grant.NO
        return decided if isinstance(decided, PermissionAnswer) else PermissionAnswer(grant=decided)


class TerminalUser:
    """A person who types lines. An empty line, or the end of input, declines."""

    def __init__(self, console: Console, lines: Lines) -> None:
        self._console = console
        self._lines = lines

    async def answer(self, question: str, options: Sequence[str] = ()) -> str:
        asked = "\n".join([f"\n? {question}", *numbered(options)])
        self._console.print(visible(asked), style="bold", markup=False)
        text = choice_of(await self._line("> "), options)
        if not text:
            raise UserAborted("the user did not answer")
        return text

    async def permit(self, request: PermissionRequest) -> PermissionAnswer:
        self._console.print("\n".join(question_of(request)), style="yellow", markup=False, soft_wrap=True)
        while (decision := permission_of(await self._line(f"{CHOICES} > "))) is None:
            self._console.print(UNCLEAR, style="yellow", markup=False)
        return decision

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

    So nothing can hide a part, and what is read is what is there. Blanks, tabs and newlines stay. A byte of a
    name that is not UTF-8 is spelled out as the model reads it.

    >>> visible("rm x\\r\\x1b[2Kls")
    'rm x\\\\r\\\\x1b[2Kls'
    """
    text = presentable(text)
    hidden = (c for c in set(text) if c not in "\n\t " and (unicodedata.category(c)[0] in "CZ" or c in BLANK))
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in hidden})


def numbered(options: Sequence[str]) -> list[str]:
    """Return the options, each with the number that chooses it."""
    return [f"  {number} {option}" for number, option in enumerate(options, 1)]


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
