"""What a shell command would run: its simple commands, found without running anything.

::

    cd pkg && FOO=1 make "all" > out | tee "$(cat name)"
    └─ cd pkg  ·  FOO=1 make all  ·  cat name  ·  tee "$(cat name)"     (`> out` stays with its command)

Reads the common core of POSIX sh and bash. What the two read differently, or what can only be known while it
runs (program names from variables, here-documents, functions, loops over names), raises Opaque: the caller
treats the whole text as one thing that no pattern covers. So reading is never more generous than the shell.
"""

import re
import shlex
import unicodedata
from dataclasses import dataclass, field

BLANK, OPERATORS, ENDS_WORD = " \t", "\n;&|", " \t\n;&|()<>"
PREFIXES = {"if", "then", "elif", "else", "while", "until", "do", "!", "{"}
CLOSERS = {"fi", "done", "}"}
UNREAD = {"for", "case", "select", "function", "[[", "coproc", "esac", "in"}
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
REDIRECTION = re.compile(r"&>>|&>|<<|<>|<&|<|>>|>&|>\||>")
PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]|\{[A-Za-z_]\w*\}", re.ASCII)
ALONE = {"!", "{", "}", "[", "]", "[[", "]]"}
LIVE = set("*?[]{}~")
"""Characters that the shell may turn into something else when they are not quoted."""


class Opaque(Exception):  # noqa: N818
    """What the command would run cannot be read from its text; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command. `text` is the same for all spellings of one word, and of no other."""

    text: str
    value: str | None
    """What the program gets; None when the shell decides that while it runs."""
    bare: bool
    """Nothing in it is quoted or escaped."""
    assigns: bool
    """It reads `NAME=…` without quotes in the name: before a program, an assignment."""

    @property
    def disguised(self) -> bool:
        """Its value reads like an assignment but is a program's name."""
        return not self.assigns and ASSIGNMENT.match(self.value or "") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirection:
    """`text` as written, `target` what it opens: `> out` writes, `< in` reads; None when it opens nothing."""

    text: str
    target: str | None


@dataclass(slots=True)
class Part:
    """One simple command.

    >>> [part.text for part in split("a 'b'&&c d>e")]
    ['a b', 'c d > e']
    """

    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)

    @property
    def command(self) -> str:
        """The words, assignments before them included, without redirections."""
        return " ".join(word.text for word in self.words)

    @property
    def text(self) -> str:
        return " ".join([self.command, *(redirection.text for redirection in self.redirections)])

    @property
    def program(self) -> list[Word]:
        """The words from the program's name on, without assignments before it."""
        at = next((i for i, word in enumerate(self.words) if not word.assigns), len(self.words))
        return self.words[at:]


def split(command: str) -> list[Part]:
    """Every simple command of `command`, those in subshells and substitutions included. Raises Opaque."""
    for char in command:
        if char not in "\n\t" and (unicodedata.category(char)[0] == "C" or (char.isspace() and char != " ")):
            raise Opaque(f"it holds the unusual character U+{ord(char):04X}")
    reader = _Reader(command)
    reader.commands(None)
    return reader.parts


class _Reader:
    """Reads left to right; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.parts: list[Part] = []

    def commands(self, end: str | None) -> None:
        """Reads commands up to `end` (or the end of the text), which it consumes."""
        part, closed = Part(), False
        while True:
            self._skip_blanks()
            char = self._peek()
            if char == (end or ""):
                self._finish(part)
                self.at += 1
                return
            if char == "":
                raise Opaque("a parenthesis is not closed")
            redirects = REDIRECTION.match(self.text, self.at) is not None
            if char in OPERATORS and not redirects:
                self._finish(part)
                part, closed, self.at = Part(), False, self.at + 1
            elif closed:
                raise Opaque("something follows a closed group")
            elif char == "(":
                self._subshell(part)
                closed = True
            elif char == ")":
                raise Opaque("a parenthesis closes nothing")
            elif redirects:
                part.redirections.append(self._redirection(""))
            else:
                closed = self._take_word(part)

    def _take_word(self, part: Part) -> bool:
        """Adds one word; True when it was the end of a group."""
        word = self._word()
        if word.bare and word.text.isdigit() and self._peek() in set("<>"):
            part.redirections.append(self._redirection(word.text))
        elif part.words or part.redirections or not word.bare:
            part.words.append(word)
        elif word.text in UNREAD:
            raise Opaque(f"it uses `{word.text}`")
        elif word.text in CLOSERS:
            return True
        elif word.text not in PREFIXES:
            part.words.append(word)
        return False

    def _finish(self, part: Part) -> None:
        if not part.words and not part.redirections:
            return
        if part.program and part.program[0].value is None:
            raise Opaque("which program it runs is known only while it runs")
        if part.program and part.program[0].disguised:
            raise Opaque("a program is named like an assignment")
        self.parts.append(part)

    def _subshell(self, part: Part) -> None:
        if part.words or part.redirections:
            raise Opaque("it defines a function or an array")
        if self.text.startswith("((", self.at):
            raise Opaque("it uses `((`")
        self.at += 1
        self.commands(")")

    def _redirection(self, descriptor: str) -> Redirection:
        found = REDIRECTION.match(self.text, self.at)
        assert found is not None
        operator = found.group()
        self.at = found.end()
        if operator in {"<<", "<>"} or self._peek() == "(":
            raise Opaque(f"it uses `{operator}`, a here-document or a substitution of a file")
        self._skip_blanks()
        if self._peek() in set(ENDS_WORD) | {""}:
            raise Opaque("a redirection leads nowhere")
        word = self._word()
        copies = operator in {">&", "<&"} and word.value is not None and re.fullmatch(r"\d+|-", word.value)
        harmless = copies or word.value == "/dev/null"
        target = None if harmless else f"{'<' if operator[0] == '<' else '>'} {word.text}"
        return Redirection(text=f"{descriptor}{operator} {word.text}", target=target)

    def _word(self) -> Word:
        start, value, live, bare = self.at, "", False, True
        while (char := self._peek()) and char not in ENDS_WORD:
            self.at += 1
            if char == "'":
                value, bare = value + self._until("'"), False
            elif char == '"':
                text, alive = self._double_quoted()
                value, live, bare = value + text, live or alive, False
            elif char == "\\":
                value, bare = value + self._escaped(), False
            elif char in "$`":
                alive = self._expansion(char, quoted=False)
                value, live = value + char, live or alive
            else:
                value, live = value + char, live or char in LIVE
        raw = self.text[start : self.at]
        assigns = ASSIGNMENT.match(raw) is not None
        if raw in ALONE:
            return Word(text=raw, value=raw, bare=True, assigns=False)
        if live:
            return Word(text=raw, value=None, bare=bare, assigns=assigns)
        name = value[: value.index("=") + 1] if assigns else ""
        text = name + shlex.quote(value[len(name) :]) if name != value else name
        return Word(text=text, value=value, bare=bare, assigns=assigns)

    def _double_quoted(self) -> tuple[str, bool]:
        value, live = "", False
        while (char := self._next("a double quote is not closed")) != '"':
            if char == "\\" and self._peek() in set('$`"\\\n'):
                value += self._escaped()
            elif char in "$`":
                live = self._expansion(char, quoted=True) or live
                value += char
            else:
                value += char
        return value, live

    def _escaped(self) -> str:
        char = self._next("it ends in a backslash")
        return "" if char == "\n" else char

    def _expansion(self, char: str, *, quoted: bool) -> bool:
        """Reads what follows `$` or a backquote; False when it is only that character."""
        if char == "`":
            self._backquoted()
            return True
        if self._peek() == "\\":
            raise Opaque("a backslash follows `$`")
        if self._peek() == "(":
            if self.text.startswith("((", self.at):
                raise Opaque("it uses `$((`")
            self.at += 1
            self.commands(")")
            return True
        if self._peek() in {"{", "["} or (self._peek() in {"'", '"'} and not quoted):
            found = PARAMETER.match(self.text, self.at)
            if found is None:
                raise Opaque(f"it uses `${self._peek()}`")
        found = PARAMETER.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found is not None

    def _backquoted(self) -> None:
        inner = self._until("`")
        if "\\" in inner:
            raise Opaque("it escapes inside backquotes")
        self.parts += split(inner)

    def _skip_blanks(self) -> None:
        """Blanks, continued lines and comments; never a newline."""
        while True:
            if self._peek() and self._peek() in BLANK:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self._peek() == "#":
                self.at = (self.text + "\n").index("\n", self.at)
            else:
                return

    def _until(self, end: str) -> str:
        found = self.text.find(end, self.at)
        if found < 0:
            raise Opaque(f"a {end} is not closed")
        inner, self.at = self.text[self.at : found], found + 1
        return inner

    def _next(self, otherwise: str) -> str:
        if self.at >= len(self.text):
            raise Opaque(otherwise)
        self.at += 1
        return self.text[self.at - 1]

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]
