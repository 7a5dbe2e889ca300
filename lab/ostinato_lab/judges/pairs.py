"""Labelled pairs of diffs to calibrate a judge with: a reference beside one made worse by a rule.

Each rule harms one aspect of the rubric for certain, whatever else it does, so the label needs no person. A
diff beside itself is a tie, on each aspect in turn.
"""

import ast
import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from ostinato.bench.judge import RUBRIC, file_diff
from ostinato.bench.quality import original
from ostinato.types import Task

SHIPPED = "pairs.jsonl"
ELSEWHERE = 5
"""The lines that the rule against scope touches without need."""
STRING = re.compile(r"(?<![\w\"'\\])\"([^\"'\\{}\n]*)\"(?!\")")
INDENT = re.compile(r"[ \t]*")


class PairsError(ValueError):
    """A file of pairs cannot be used; the message names the line and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two diffs that answer one request, and the side that is better on one aspect.

    >>> Pair(id="a", cluster="t", request="mend f", aspect="scope", first="-", second="+",
    ...      better="tie").better
    'tie'
    """

    id: str
    cluster: str
    """The task that both diffs are of: pairs of one task resemble each other."""
    request: str
    aspect: str
    first: str
    second: str
    better: str
    """`first`, `second` or `tie`."""

    def __post_init__(self) -> None:
        if self.aspect not in RUBRIC:
            raise PairsError(f"pair {self.id}: {self.aspect!r} is no aspect, only {', '.join(RUBRIC)}")
        if self.better not in {"first", "second", "tie"}:
            raise PairsError(f"pair {self.id}: `better` is {self.better!r}, not first, second or tie")


def shipped() -> list[Pair]:
    """Return the pairs that come with the package."""
    return _parse(SHIPPED, (files("ostinato_lab.judges") / SHIPPED).read_text(encoding="utf-8"))


def load_pairs(path: Path) -> list[Pair]:
    """Read pairs, one JSON object a line. Raises PairsError, which names the line."""
    try:
        return _parse(str(path), path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PairsError(f"{path} cannot be read: {error}") from error


def _parse(name: str, text: str) -> list[Pair]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(Pair(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise PairsError(f"{name}:{number} is no pair: {error}") from error
    if not found:
        raise PairsError(f"{name} holds no pair")
    return found


def line_of(pair: Pair) -> str:
    return json.dumps(asdict(pair), ensure_ascii=False)


def pairs_of(tasks: Sequence[Task]) -> Iterator[Pair]:
    """Yield pairs made of each task whose reference changes one Python file, as many as rules apply to it."""
    ties = 0
    for task in tasks:
        changed = reference(task)
        if changed is None:
            continue
        path, before, after = changed
        good = file_diff(path, before.encode(), after.encode())
        for aspect, rule in RULES.items():
            if (worse := rule(before, after)) is not None and _parses(worse):
                yield _pair(task, aspect, good, file_diff(path, before.encode(), worse.encode()))
        aspect = list(RUBRIC)[ties % len(RUBRIC)]
        ties += 1
        yield Pair(
            id=f"{task.id}/same",
            cluster=task.id,
            request=task.instruction,
            aspect=aspect,
            first=good,
            second=good,
            better="tie",
        )


def _pair(task: Task, aspect: str, good: str, worse: str) -> Pair:
    """Return the pair in an order that the hash of its id decides."""
    id = f"{task.id}/{aspect}"
    swapped = hashlib.sha256(id.encode()).digest()[0] % 2 == 1
    return Pair(
        id=id,
        cluster=task.id,
        request=task.instruction,
        aspect=aspect,
        first=worse if swapped else good,
        second=good if swapped else worse,
        better="second" if swapped else "first",
    )


def reference(task: Task) -> tuple[str, str, str] | None:
    """Return path and text before and after of a reference of one Python file; None for any other."""
    patches = sorted(task.directory.glob("solution/*.patch"))
    text = "".join(path.read_text(errors="replace") for path in patches)
    names = re.findall(r"^\+\+\+ b/(.*?)\t?$", text, re.MULTILINE)
    data = original(task.repo, names[0]) if len(names) == 1 and names[0].endswith(".py") else None
    if data is None:
        return None
    before = data.decode(errors="replace")
    after = _patched(before.splitlines(keepends=True), text)
    return (names[0], before, after) if after is not None and _parses(after) else None


def _patched(old: list[str], patch: str) -> str | None:
    """Return a text after the hunks of a patch; None when one does not fit."""
    new, at = list[str](), 0
    for hunk in re.split(r"^(?=@@ )", patch, flags=re.MULTILINE)[1:]:
        head = re.match(r"@@ -(\d+)(?:,(\d+))? ", hunk)
        if head is None:
            return None
        start = int(head[1]) - (1 if head[2] != "0" else 0)
        new += old[at:start]
        at = start
        for line in hunk.splitlines(keepends=True)[1:]:
            if line[0] in " -":
                if at >= len(old) or old[at].rstrip("\n") != line[1:].rstrip("\n"):
                    return None
                at += 1
            if line[0] in " +":
                new.append(line[1:])
    return "".join([*new, *old[at:]])


# ---------------------------------------------------------------- the rules


def _beyond(before: str, after: str) -> str | None:
    """Harm scope: write the quotes of other lines another way."""
    lines, needed = after.splitlines(keepends=True), set(_changed(before, after))
    places = [
        n for n, line in enumerate(lines) if n not in needed and STRING.search(line) and '"""' not in line
    ]
    if len(places) < ELSEWHERE:
        return None
    step = len(places) // ELSEWHERE
    for n in places[::step][:ELSEWHERE]:
        lines[n] = STRING.sub(r"'\1'", lines[n], count=1)
    return "".join(lines)


def _riddle(before: str, after: str) -> str | None:
    """Harm clarity: wrap a value of a changed line in a function that returns it."""
    for statement, lines in _statements(before, after):
        value = getattr(statement, "value", None) or getattr(statement, "test", None)
        if isinstance(value, ast.expr) and not any(
            isinstance(each, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr)
            for each in ast.walk(value)
        ):
            if value.lineno != value.end_lineno or value.end_col_offset is None:
                continue
            line = lines[value.lineno - 1].encode()
            part = line[value.col_offset : value.end_col_offset]
            lines[value.lineno - 1] = (
                line[: value.col_offset]
                + b"(lambda q: (lambda qq: qq)(q))("
                + part
                + b")"
                + line[value.end_col_offset :]
            ).decode()
            return "".join(lines)
    return None


def _swallow(before: str, after: str) -> str | None:
    """Harm care: let a changed statement hide every error."""
    for statement, lines in _statements(before, after):
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.Return | ast.Raise):
            first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
            blank = INDENT.match(lines[first])
            indent = blank[0] if blank else ""
            inside = [f"    {line}" for line in lines[first:last]]
            lines[first:last] = [
                f"{indent}try:\n",
                *inside,
                f"{indent}except Exception:\n",
                f"{indent}    pass\n",
            ]
            return "".join(lines)
    return None


def _litter(before: str, after: str) -> str | None:
    """Harm finish: leave the old lines in comments, and a print that was used to look."""
    gone = [line for line in _gone(before, after) if line.strip()]
    for statement, lines in _statements(before, after):
        blank = INDENT.match(lines[statement.lineno - 1])
        indent = blank[0] if blank else ""
        old = [f"{indent}# {line.strip()}\n" for line in gone[:3]]
        lines[statement.lineno - 1 : statement.lineno - 1] = [
            *old,
            f'{indent}print("HERE 2")  # TODO remove\n',
        ]
        return "".join(lines)
    return None


RULES: dict[str, Callable[[str, str], str | None]] = {
    "scope": _beyond,
    "clarity": _riddle,
    "care": _swallow,
    "finish": _litter,
}


def _statements(before: str, after: str) -> Iterator[tuple[ast.stmt, list[str]]]:
    """Yield the statements in functions that begin on a changed line, each with the lines of the text."""
    changed = {n + 1 for n in _changed(before, after)}
    for function in ast.walk(ast.parse(after)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in ast.walk(function):
                if not isinstance(statement, ast.stmt) or _is_docstring(function, statement):
                    continue
                if statement is not function and statement.lineno in changed:
                    yield statement, after.splitlines(keepends=True)


def _is_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.AST) -> bool:
    return statement is function.body[0] and ast.get_docstring(function) is not None


def _changed(before: str, after: str) -> list[int]:
    """Return the numbers, from 0, of the lines of `after` that are new."""
    return [n for kind, _, (low, high) in _blocks(before, after) if kind != "equal" for n in range(low, high)]


def _gone(before: str, after: str) -> list[str]:
    old = before.splitlines()
    return [
        line for kind, (low, high), _ in _blocks(before, after) if kind != "equal" for line in old[low:high]
    ]


def _blocks(before: str, after: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        yield kind, (i1, i2), (j1, j2)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
