"""Diffs with line numbers, the colours of the language, and a sign on each line beside its colour."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.syntax import Syntax
from rich.text import Text

from ostinato.harness.conversation import Edit
from ostinato.harness.tools.names import shown
from ostinato.harness.users import visible

HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")
LONGEST = 400
"""The characters of a line that are coloured; a longer one is shown plain."""
TINTS = {True: {"+": "on #12301b", "-": "on #3a1618"}, False: {"+": "on #dcf5e3", "-": "on #fbe3e4"}}
"""The backgrounds of added and of removed lines, on a dark and on a light terminal."""
SIGNS = {"+": "bold green", "-": "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a diff.

    >>> DiffLine(kind="+", number=3, text="x = 1", path="a.py").kind
    '+'
    """

    kind: str
    """`+`, `-`, a space, `@` for the head of a hunk, `f` for the head of a file."""
    number: int | None
    text: str
    path: str


def diff_of(edit: Edit) -> str:
    """Return an edit as a unified diff; of bytes that are no text it says so."""
    path = shown(edit.path)
    try:
        before, after = ((side or b"").decode() for side in (edit.before, edit.after))
    except UnicodeDecodeError:
        return f"--- {path}\n+++ {path}\nnot a text\n"
    names = (path if edit.before is not None else "/dev/null", path)
    lines = difflib.unified_diff(_lines(before), _lines(after), *names, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines as git counts them, which end with a newline and with nothing else."""
    return text.removesuffix("\n").split("\n") if text else []


def rows(diff: str) -> Iterator[DiffLine]:
    """Yield the lines of a unified diff, as git or difflib writes it, numbered as they are in the file."""
    path, old, new, within = "", 0, 0, False
    for line in _lines(visible(diff)):
        if hunk := HUNK.match(line):
            old, new, within = int(hunk[1]), int(hunk[2]), True
            yield DiffLine(kind="@", number=None, text=hunk[3].strip(), path=path)
        elif line.startswith("diff --git "):
            within = False
        elif not within and line.startswith("+++ "):
            path = line[4:].removeprefix("b/").partition("\t")[0]
            yield DiffLine(kind="f", number=None, text=path, path=path)
        elif within and line[:1] in {"+", "-", " "}:
            kind = line[0]
            yield DiffLine(kind=kind, number=old if kind == "-" else new, text=line[1:], path=path)
            old, new = old + (kind != "+"), new + (kind != "-")


def counted(diff: str) -> str:
    """Return the files of a diff with their numbers of added and removed lines.

    >>> counted("--- a.py\\n+++ a.py\\n@@ -1 +1,2 @@\\n-x\\n+y\\n+z\\n")
    'a.py +2 −1'
    """
    counts: dict[str, list[int]] = {}
    for row in rows(diff):
        count = counts.setdefault(row.path, [0, 0])
        count[0] += row.kind == "+"
        count[1] += row.kind == "-"
    return ", ".join(f"{path} +{added} \u2212{removed}" for path, (added, removed) in counts.items())


def shown_diff(diff: str, *, dark: bool, files: bool = True) -> Text:
    """Return a diff to show; `files` names each file above its lines."""
    all_rows = list(rows(diff))
    wide = max((len(str(row.number)) for row in all_rows if row.number), default=1)
    painters: dict[str, Syntax | None] = {}
    shown = Text()
    for place, row in enumerate(all_rows):
        if row.kind == "f":
            shown.append(f"{row.path}\n" if files else "", style="bold")
        elif row.kind == "@":
            first = place == 0 or all_rows[place - 1].kind == "f"
            shown.append("" if first and not row.text else f"{'⋯':>{wide}}  {row.text}\n", style="dim")
        else:
            if row.path not in painters:
                painters[row.path] = _painter(row.path, dark=dark)
            shown.append_text(_line(row, wide, painters[row.path], dark=dark))
    shown.rstrip()
    return shown


def _painter(path: str, *, dark: bool) -> Syntax | None:
    lexer = Syntax.guess_lexer(path)
    if lexer == "default":
        return None
    return Syntax("", lexer, theme="ansi_dark" if dark else "ansi_light")


def _line(row: DiffLine, wide: int, painter: Syntax | None, *, dark: bool) -> Text:
    line = Text(f"{row.number:>{wide}} ", style="dim")
    line.append(f"{row.kind} ", style=SIGNS.get(row.kind, ""))
    code = Text(row.text)
    if painter is not None and len(row.text) <= LONGEST:
        code = painter.highlight(row.text)
        code.rstrip()
    line.append_text(code)
    if tint := TINTS[dark].get(row.kind):
        line.stylize(tint)
    return line.append("\n")
