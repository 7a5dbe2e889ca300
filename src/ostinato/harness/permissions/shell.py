"""The reader of shell commands: finds the simple commands of a text without running anything.

::

    cd pkg && FOO=1 make "all" > out | tee "$(cat name)"
    └─ cd pkg  ·  FOO=1 make all  ·  cat name  ·  tee "$(cat name)"     (`> out` stays with its command)

`/bin/sh` is dash on some machines and bash on others, so this reads only text that both read alike. Three
kinds of text raise Opaque: text that they read differently (`&>`, `|&`, `12>`, `{fd}>`, `a+=b`, a continued
line within a word), text whose meaning is known only while it runs (a program's name from a variable,
here-documents, functions, loops over names), and backquotes, whose quoting has rules of its own. The caller
then treats the whole text as one thing that no pattern covers. `benchmarks/shell_fuzz.py` compares this
reader with both shells.
"""

import re
import shlex
import unicodedata
from dataclasses import dataclass, field

BLANK, OPERATORS, ENDS_WORD = " \t", "\n;&|", " \t\n;&|()<>"
PREFIXES = {"if", "then", "elif", "else", "while", "until", "do", "!", "{"}
CLOSERS = {"fi", "done", "}"}
UNREAD = {"for", "case", "select", "function", "[[", "coproc", "esac", "in", "time"}
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
APPENDING = re.compile(r"[A-Za-z_]\w*\+=", re.ASCII)
REDIRECTION = re.compile(r"<<|<>|<&|<|>>|>&|>\||>")
PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]|\{[A-Za-z_]\w*\}", re.ASCII)
ALONE = {"!", "{", "}", "[", "]", "[[", "]]"}
LIVE = set("*?[]{}~")
"""The characters that the shell may turn into something else when they are not quoted."""
SUBSCRIPTS = {"[", "test", "printf", "read", "unset", "wait", "getopts", "mapfile", "readarray", "declare"}
SUBSCRIPTS |= {"typeset", "local", "readonly", "export", "let", "compgen", "complete"}
"""The builtins for which bash evaluates a word like `a[$(rm x)]` although it is quoted."""
EVALUATES = {
    "eval",
    ".",
    "source",
    "exec",
    "command",
    "builtin",
    "trap",
    "alias",
    "unalias",
    "hash",
    "enable",
}
EVALUATES |= {"fc", "bind", "let", "jobs"}
"""The builtins that run or redefine what their words say."""
MEANING = re.compile(
    r"PATH|CDPATH|ENV|BASH_ENV|IFS|SHELLOPTS|BASHOPTS|PS4|PAGER|EDITOR|VISUAL|MANPAGER|LESSOPEN|LESSCLOSE"
    r"|(LD|DYLD|GIT|BASH|PYTHON|PERL|RUBY|NODE)_\w*|PYTHON\w+|PERL5\w+|RUBYOPT"
)
"""The variables that decide which program runs, or what a program runs."""
UNKNOWN = "\ue000"
"""The character that stands for any text in a shape. No command holds it, since `split` refuses it."""
MOST_CHARS, DEEPEST = 64_000, 16


class Opaque(Exception):  # noqa: N818
    """The programs of a command cannot be read from its text; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command. All spellings of a word, and of no other, have the same `text`."""

    text: str
    value: str | None
    """The word that the program gets; None when the shell decides it while it runs."""
    shape: str
    """`text` with UNKNOWN from where the shell decides to where it no longer does: `src/*.py` is `src/U.py`.
    It may become no word, one or several."""
    bare: bool
    """True when nothing in it is quoted or escaped."""
    assigns: bool
    """True when it reads `NAME=…` without quotes in the name, which is an assignment before a program."""

    @property
    def disguised(self) -> bool:
        """True when its value reads like an assignment but is a program's name, or is an assignment in bash
        alone.
        """
        if self.value is None:
            return False
        return APPENDING.match(self.value) is not None or (
            not self.assigns and ASSIGNMENT.match(self.value) is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirection:
    """A redirection: its `text` as written, and the `word` that it opens for writing or reading, if any."""

    text: str
    word: Word | None
    writes: bool

    @property
    def target(self) -> str | None:
        """Return `> out` for writing, `< in` for reading; None when it opens nothing that matters."""
        return None if self.word is None else f"{'>' if self.writes else '<'} {self.word.text}"


@dataclass(slots=True)
class WordPart:
    """One simple command.

    >>> [part.text for part in split("a 'b'&&c d>e")]
    ['a b', 'c d > e']
    """

    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)

    @property
    def command(self) -> str:
        """Return the words with the assignments before them, without redirections."""
        return " ".join(word.text for word in self.words)

    @property
    def shape(self) -> str:
        """Return `command` with UNKNOWN for text that only the shell knows."""
        return " ".join(word.shape for word in self.words)

    @property
    def text(self) -> str:
        return " ".join([self.command, *(redirection.text for redirection in self.redirections)])

    @property
    def program(self) -> list[Word]:
        """Return the words from the program's name on, without the assignments before it."""
        at = next((i for i, word in enumerate(self.words) if not word.assigns), len(self.words))
        return self.words[at:]


def split(command: str) -> list[WordPart]:
    """Return every simple command, those in subshells and substitutions included; raises Opaque."""
    if len(command) > MOST_CHARS:
        raise Opaque(f"it has more than {MOST_CHARS} characters")
    for char in set(command):
        if char not in "\n\t" and (unicodedata.category(char)[0] == "C" or (char.isspace() and char != " ")):
            raise Opaque(f"it holds the unusual character U+{ord(char):04X}")
    reader = _Reader(command)
    reader.commands(None)
    return reader.parts


class _Reader:
    """A reader from left to right; `at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.parts: list[WordPart] = []
        self._depth = 0
        self._substituting = 0

    def commands(self, end: str | None) -> None:
        """Read commands up to `end` (or the end of the text), and consume it."""
        part, closed = WordPart(), False
        while True:
            self._skip_blanks()
            char = self._peek()
            if char == (end or ""):
                self._finish(part)
                self.at += 1
                return
            if char == "":
                raise Opaque("a parenthesis is not closed")
            if char in OPERATORS:
                self._finish(part)
                part, closed = WordPart(), False
                self._operator()
            elif closed:
                raise Opaque("something follows a closed group")
            elif char == "(":
                self._subshell(part)
                closed = True
            elif char == ")":
                raise Opaque("a parenthesis closes nothing")
            elif char in "<>":
                part.redirections.append(self._redirection(""))
            else:
                closed = self._take_word(part)

    def _operator(self) -> None:
        for only_bash in ("&>", "|&"):
            if self.text.startswith(only_bash, self.at):
                raise Opaque(f"it uses `{only_bash}`, which shells read differently")
        self.at += 1

    def _take_word(self, part: WordPart) -> bool:
        """Add one word; return True when it was the end of a group."""
        start = self.at
        word = self._word()
        if word.bare and self._peek() in set("<>") and self._is_descriptor(self.text[start : self.at]):
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

    def _is_descriptor(self, word: str) -> bool:
        """Return whether a word right before `<` or `>` is the number of the redirected descriptor."""
        if word.startswith("{") or (word.isdigit() and len(word) > 1):
            raise Opaque(f"shells read `{word}` before a redirection differently")
        return word.isdigit()

    def _finish(self, part: WordPart) -> None:
        if not part.words and not part.redirections:
            return
        if part.program and part.program[0].value is None:
            raise Opaque("which program it runs is known only while it runs")
        if part.program and part.program[0].disguised:
            raise Opaque("a program is named like an assignment")
        if part.program and part.program[0].value in EVALUATES:
            raise Opaque(f"`{part.program[0].value}` runs or redefines what its words say")
        for word in part.words[: len(part.words) - len(part.program)]:
            if MEANING.fullmatch(word.text.partition("=")[0]):
                raise Opaque(f"it sets {word.text.partition('=')[0]}, which decides what runs")
        if part.program and part.program[0].value in SUBSCRIPTS and any(map(_evaluated, part.program[1:])):
            raise Opaque(f"bash may evaluate a word of `{part.program[0].value}`")
        self.parts.append(part)

    def _subshell(self, part: WordPart) -> None:
        if part.words or part.redirections:
            raise Opaque("it defines a function or an array")
        if self.text.startswith("((", self.at):
            raise Opaque("it uses `((`")
        self._nested(")")

    def _nested(self, end: str) -> None:
        """Read the commands within parentheses, the first of which is next."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise Opaque("it is nested too deeply")
        self.at += 1
        self.commands(end)
        self._depth -= 1

    def _redirection(self, descriptor: str) -> Redirection:
        found = REDIRECTION.match(self.text, self.at)
        assert found is not None
        operator = found.group()
        self.at = found.end()
        if operator in {"<<", "<>"} or self._peek() in set("(&"):
            raise Opaque(f"it uses `{operator}`, a here-document or a substitution of a file")
        self._skip_blanks()
        if self._peek() in set(ENDS_WORD) | {""}:
            raise Opaque("a redirection leads nowhere")
        word = self._word()
        text = f"{descriptor}{operator} {word.text}"
        if word.bare and word.text.isdigit() and self._peek() in set("<>"):
            raise Opaque("shells read a number before a redirection differently")
        if operator in {">&", "<&"}:
            if not word.bare or re.fullmatch(r"[0-9]|-", word.text, re.ASCII) is None:
                raise Opaque(f"shells read `{operator}` before a name differently")
            return Redirection(text=text, word=None, writes=False)
        if word.value is not None and word.value.startswith(("/dev/tcp/", "/dev/udp/")):
            raise Opaque("bash connects to the network for it")
        opened = None if word.value == "/dev/null" else word
        return Redirection(text=text, word=opened, writes=operator != "<")

    def _word(self) -> Word:
        start, bare = self.at, True
        pieces: list[str | None] = []
        while (char := self._peek()) and char not in ENDS_WORD:
            self.at += 1
            if char == "'":
                pieces.append(self._until("'"))
                bare = False
            elif char == '"':
                pieces += self._double_quoted()
                bare = False
            elif char == "\\":
                pieces.append(self._escaped())
                bare = False
            elif char in "$`":
                pieces.append(None if self._expansion(char, quoted=False) else char)
            elif not char.isascii():
                raise Opaque("it holds a letter outside quotes that shells may take for a blank")
            else:
                pieces.append(None if char in LIVE else char)
        return _word_of(self.text[start : self.at], pieces, bare=bare)

    def _double_quoted(self) -> list[str | None]:
        pieces: list[str | None] = []
        while (char := self._next("a double quote is not closed")) != '"':
            if char == "\\" and self._peek() in set('$`"\\\n'):
                pieces.append(self._escaped())
            elif char in "$`":
                pieces.append(None if self._expansion(char, quoted=True) else char)
            else:
                pieces.append(char)
        return pieces

    def _escaped(self) -> str:
        char = self._next("it ends in a backslash")
        if char == "\n":
            raise Opaque("a line is continued within a word")
        if not char.isascii():
            raise Opaque("it holds a letter outside quotes that shells may take for a blank")
        return char

    def _expansion(self, char: str, *, quoted: bool) -> bool:
        """Read the text after `$`; return False when it is only that character."""
        if char == "`":
            raise Opaque("it uses backquotes")
        if self._peek() == "\\":
            raise Opaque("a backslash follows `$`")
        if self._peek() == "(":
            if self.text.startswith("((", self.at):
                raise Opaque("it uses `$((`")
            self._substituting += 1
            self._nested(")")
            self._substituting -= 1
            return True
        found = PARAMETER.match(self.text, self.at)
        if found is None and (self._peek() in {"{", "["} or (self._peek() in {"'", '"'} and not quoted)):
            raise Opaque(f"it uses `${self._peek()}`")
        self.at = found.end() if found else self.at
        return found is not None

    def _skip_blanks(self) -> None:
        """Skip blanks, comments, and lines continued after a blank; never a newline."""
        while True:
            if self._peek() and self._peek() in BLANK:
                self.at += 1
            elif self.text.startswith("\\\n", self.at) and self.text[self.at - 1 : self.at] in set(" \t\n"):
                self.at += 2
            elif self._peek() == "#":
                if self._substituting:
                    raise Opaque("there is a comment in a substitution")
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
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


def _word_of(raw: str, pieces: list[str | None], *, bare: bool) -> Word:
    """Return the word that is written `raw`; `pieces` are its parts without quotes, None where the shell
    decides.
    """
    assigns = ASSIGNMENT.match(raw) is not None
    if raw in ALONE:
        return Word(text=raw, value=raw, shape=raw, bare=True, assigns=False)
    if None in pieces:
        first, last = pieces.index(None), len(pieces) - 1 - pieces[::-1].index(None)
        before, after = ("".join(map(str, some)) for some in (pieces[:first], pieces[last + 1 :]))
        return Word(text=raw, value=None, shape=f"{before}{UNKNOWN}{after}", bare=bare, assigns=assigns)
    value = "".join(map(str, pieces))
    name = value[: value.index("=") + 1] if assigns else ""
    text = name + shlex.quote(value[len(name) :]) if name != value else name
    return Word(text=text, value=value, shape=text, bare=bare, assigns=assigns)


def _evaluated(word: Word) -> bool:
    """Return whether a builtin of bash might run something that this word names."""
    text = word.text if word.value is None else word.value
    return ("$(" in text and word.value is None) or ("[" in text and ("$" in text or "`" in text))
