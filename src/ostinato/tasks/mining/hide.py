"""The hiding of tests: some that a task turns on are taken out of the repository that an agent sees."""

import ast
import hashlib
from collections.abc import Iterable


def functions_of(test_ids: Iterable[str]) -> list[str]:
    """Return the test functions of these ids, parameters left out, each once."""
    return list(dict.fromkeys(name.partition("[")[0] for name in test_ids))


def chosen(failing: Iterable[str]) -> list[str]:
    """Return the half of the failing test functions, rounded up, that is hidden; hashes decide."""
    names = sorted(functions_of(failing), key=lambda name: hashlib.sha256(name.encode()).digest())
    return names[: (len(names) + 1) // 2]


def without(source: str, path: str, names: Iterable[str]) -> tuple[str, list[str]]:
    """Return the text of a test file without these test functions, and those that were found in it."""
    wanted = {tuple(name.split("::")[1:]): name for name in names if name.split("::")[0] == path}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source, []
    lines, found = source.splitlines(keepends=True), []
    for where, node, alone in reversed(list(_tests(tree.body, ()))):
        if where in wanted:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            blank = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
            lines[first - 1 : node.end_lineno] = [f"{blank}pass\n"] if alone else []
            found.append(wanted[where])
    text = "".join(lines)
    try:
        ast.parse(text)
    except SyntaxError:  # a class lost every one of its tests
        return source, []
    return text, sorted(found)


def _tests(
    body: list[ast.stmt], above: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Yield the functions of a module and its classes: names, node, and whether it is alone in its class."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (*above, node.name), node, len(body) == 1
        elif isinstance(node, ast.ClassDef):
            yield from _tests(node.body, (*above, node.name))
