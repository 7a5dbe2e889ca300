"""The statements of hidden tests, read as they would run."""

import ast
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.machinery import PathFinder
from pathlib import PurePosixPath

from ostinato.assertions.deciding import JUDGE, Decided, Decisions, Found, Holds
from ostinato.assertions.values import FUNCTIONS, Function, Names, Origin, Own, Value, last, parameters, root

_EXPECTS = {
    "raises",
    "assertRaises",
    "assertRaisesRegex",
    "RaisesGroup",
    "warns",
    "assertWarns",
    "assertLogs",
}
"""Contexts that fail where their body does not raise or warn."""
_CAN_END = _EXPECTS | {"suppress", "ExitStack"}
"""Contexts that may end an error of their body."""
_ENDED = "an exception of the code under test may end it"
_SETUP = ("setUpClass", "setup_class", "setup_method", "setUp", "asyncSetUp")


class TestReader(Decisions):
    """A reader of the hidden tests of one task.

    `tests` are the texts of the tests' own files by path, `repository` the repository's top-level names.
    """

    def __init__(self, tests: Mapping[str, str], repository: Collection[str]) -> None:
        super().__init__()
        self._repository = repository
        self._trees = {_dotted(path): ast.parse(text) for path, text in tests.items()}
        self._files = {_dotted(path): path for path in tests}
        self._modules: dict[str, Names] = {}
        self._shade = ""
        """The reason why the candidate decides whatever is asserted here; empty where each tells."""

    def faults(self, ids: Sequence[str]) -> list[str]:
        """Return a sentence for each test of these ids that the judge does not decide; none means all."""
        tests = {
            f"{self._files[name]}::{id}": found
            for name in self._trees
            for id, found in self._tests(name).items()
        }
        truths = {truth for found in tests.values() for truth in found.truths}
        said = []
        for id in dict.fromkeys(each.partition("[")[0] for each in ids or tests):
            found = tests.get(id, Found(faults=[(0, "it is made while the tests run")]))
            held = found.held or any((what, not wanted) in truths for what, wanted in found.truths)
            faults = found.faults or ([] if held else [(0, "it has no assertion that the judge decides")])
            said += [f"{id}, line {line}: {why}" if line else f"{id}: {why}" for line, why in faults[:1]]
        return said

    def _tests(self, name: str) -> dict[str, Found]:
        names, found = self._module(name), dict[str, Found]()
        for node in self._trees[name].body:
            if isinstance(node, FUNCTIONS) and node.name.startswith("test"):
                found[node.name] = self._test(node, dict(names))
            elif isinstance(node, ast.ClassDef):
                for method in self._methods(node, names).values():
                    if method.name.startswith("test"):
                        found[f"{node.name}::{method.name}"] = self._test(method, dict(names), node)
        return found

    def _family(self, node: ast.ClassDef, names: Names) -> list[tuple[ast.ClassDef, Names]]:
        """Return a class after its bases among the tests' own classes, each with the names that it sees."""
        bases = [self.value(base, names) for base in reversed(node.bases)]
        own = [each for each in bases if isinstance(each, Own) and each.node is not node]
        known = [(each.node, each.names) for each in own if isinstance(each.node, ast.ClassDef)]
        return [*(one for each in known for one in self._family(*each)), (node, names)]

    def _methods(self, node: ast.ClassDef, names: Names) -> dict[str, Function]:
        bodies = [each for one, _ in self._family(node, names) for each in one.body]
        return {each.name: each for each in bodies if isinstance(each, FUNCTIONS)}

    def _test(self, node: Function, names: Names, owner: ast.ClassDef | None = None) -> Found:
        """Read one test, after what its class sets up."""
        if owner is not None:
            if any(self.origin(base, seen) for one, seen in self._family(owner, names) for base in one.bases):
                return Found(faults=[(owner.lineno, "its class derives from the code under test")])
            methods, inside = self._methods(owner, names), dict(names)
            self.body([each for each in owner.body if not isinstance(each, FUNCTIONS)], inside)
            names |= {f"self.{name}": value for name, value in inside.items() if names.get(name) is not value}
            names |= {f"self.{name}": Own(each, names) for name, each in methods.items()}
            self.body([each for name in _SETUP if name in methods for each in methods[name].body], names)
        self.found, self.lent = Found(), set()
        given: dict[str, Origin] = {}
        for mark in [*node.decorator_list, *(owner.decorator_list if owner else ())]:
            if isinstance(mark, ast.Call) and last(mark.func) == "parametrize" and len(mark.args) > 1:
                given |= self._columns(mark.args[0], mark.args[1], names)
        for name in parameters(node.args):
            if name != "self":
                names[name] = given.get(name) or self._fixture(name, names)
        self.body(node.body, names)
        return self.found

    def _columns(self, listed: ast.expr, values: ast.expr, names: Names) -> dict[str, Origin]:
        """Return where the values of each parameter come from."""
        words = ast.unparse(listed).translate(dict.fromkeys(map(ord, "'\"()[],"), " ")).split()
        rows = [_cells(each) for each in getattr(values, "elts", [values])]
        return {
            word: max((self.origin(_cell(row, at, len(words)), names) for row in rows), default=Origin.TEST)
            for at, word in enumerate(words)
        }

    def _fixture(self, name: str, names: Names) -> Origin:
        """Return where the value of a fixture comes from: of the file itself, or of a `conftest.py`."""
        shared = [each for each in self._trees if PurePosixPath(self._files[each]).name == "conftest.py"]
        found = [space[name] for space in (names, *map(self._module, shared)) if name in space]
        if not (found and isinstance(found[0], Own)):
            return Origin.TEST
        before, self.found = self.found, Found()
        origin = max(self.follow(found[0], None, names, self.origin), default=Origin.TEST)
        self.found = before
        return origin

    # names

    def _module(self, name: str) -> Names:
        """Return the names of a file of the tests' own."""
        if name not in self._modules:
            names = self._modules[name] = dict.fromkeys(("*", "self", "cls"), Origin.TEST)
            before, self.found, self._shade = (self.found, self._shade), Found(), ""
            self.body(self._trees[name].body, names)
            self.found, self._shade = before
        return self._modules[name]

    def origin_of_module(self, name: ast.expr | None) -> Origin:
        known = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
        value = self._imported(known) if known else Origin.ANSWER
        return Origin.TEST if isinstance(value, Own) else value

    def _imported(self, name: str) -> Value:
        if name in self._trees:
            return Own(self._trees[name], self._module(name))
        if any(each.startswith(f"{name}.") for each in self._trees):
            return Origin.TEST
        top = name.partition(".")[0]
        installed = top not in self._repository and top not in self._trees and _installed(top)
        return Origin.TEST if installed else Origin.ANSWER

    def _import(self, node: ast.Import | ast.ImportFrom, names: Names) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or module] = self._imported(module)
            return
        near = [each for each in self._trees if node.level and each.rpartition(".")[2] == node.module]
        module = near[0] if near else node.module or ""
        source = self._imported(module)
        for alias in node.names:
            if alias.name == "*":
                names |= source.names if isinstance(source, Own) else {"*": source or names["*"]}
            elif f"{module}.{alias.name}" in self._trees:
                names[alias.asname or alias.name] = self._imported(f"{module}.{alias.name}")
            else:
                owner = source.attribute(alias.name) if isinstance(source, Own) else source
                names[alias.asname or alias.name] = owner

    # statements

    def body(self, body: Iterable[ast.stmt], names: Names) -> None:
        before = self._shade
        for each in body:
            self._statement(each, names)
        self._shade = before

    def _statement(self, node: ast.stmt, names: Names) -> None:
        match node:
            case ast.Assert():
                self._note(node, self.decided(node.test, names))
            case ast.Expr():
                self._expression(node.value, names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                foreign = any(self.origin(each, names) for each in node.decorator_list)
                names[node.name] = Origin.ANSWER if foreign else Own(node, names)
            case ast.Import() | ast.ImportFrom():
                self._import(node, names)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    value = self.value(node.value, names)
                    self.bind(target, value, names, whole=not isinstance(node, ast.AugAssign))
            case ast.If() | ast.While():
                self._branches(node, node.test, [node.body, node.orelse], names)
            case ast.Match():
                self._branches(node, node.subject, [each.body for each in node.cases], names)
            case ast.For() | ast.AsyncFor():
                origin = self.origin(node.iter, names)
                self.bind(node.target, origin, names)
                self._weakly([*node.body, *node.orelse], names, weak=bool(origin))
            case ast.With() | ast.AsyncWith() | ast.Try():
                self._guarded(node, names)
            case ast.Return() if node.value is not None:
                self.returns(node.value, names)

    def _branches(self, node: ast.stmt, asked: ast.expr, bodies: list[list[ast.stmt]], names: Names) -> None:
        before = self._shade
        if self.origin(asked, names):
            self._shade = "the code under test says whether it is reached"
        for body in bodies:
            self.body(body, names)
        leaves = any(isinstance(each, ast.Return | ast.Continue | ast.Break) for each in ast.walk(node))
        self._shade = self._shade if leaves else before

    def _weakly(self, body: list[ast.stmt], names: Names, *, weak: bool) -> None:
        """Read what may not run at all where it is `weak`, and decides nothing then."""
        held = self.found.held
        self.body(body, names)
        self.found.held = held if weak else self.found.held

    def _guarded(self, node: ast.With | ast.AsyncWith | ast.Try, names: Names) -> None:
        """Read a body whose errors may be ended or expected around it."""
        before, expects = self._shade, False
        if isinstance(node, ast.Try):
            if any(each.type is not None and self.origin(each.type, names) for each in node.handlers):
                self._shade = _ENDED
        else:
            for item in node.items:
                call = item.context_expr
                name = last(call.func) if isinstance(call, ast.Call) else ""
                known = not any(self.origin(each, names) for each in ast.iter_child_nodes(call))
                self._shade = self._shade if known or name not in _CAN_END else _ENDED
                expects |= known and name in _EXPECTS
                if item.optional_vars is not None:
                    value = Origin.ANSWER if name in _CAN_END else self.value(call, names)
                    self.bind(item.optional_vars, value, names)
        self.body(node.body, names)
        asks = any(self.origin(each, names) for each in ast.walk(node) if isinstance(each, ast.Call))
        self._shade = before
        if expects and asks:
            self._note(node, JUDGE)
        for each in node.handlers if isinstance(node, ast.Try) else ():
            names |= {each.name: Origin.ANSWER} if each.name else {}
            self._weakly(each.body, names, weak=True)
        self.body([*node.orelse, *node.finalbody] if isinstance(node, ast.Try) else [], names)

    def _expression(self, node: ast.expr, names: Names) -> None:
        """Read a call for its effect: an assertion by a function, or a change of what it is given."""
        node = node.value if isinstance(node, ast.Await) else node
        called = self.value(node.func, names) if isinstance(node, ast.Call) else Origin.TEST
        if not isinstance(node, ast.Call):
            self.origin(node, names)
        elif isinstance(called, Own):
            self.follow(called, node, names, self.origin)
        elif not called and ("assert" in last(node.func).lower() or last(node.func) == "raises"):
            self._note(node, self.decided(node, names))
        elif self.origin(node, names) and not called:
            self.bind(root(node.func), Origin.ANSWER, names)

    def _note(self, node: ast.stmt | ast.expr, decided: Decided) -> None:
        who, why = decided
        if self._shade and who is not Holds.NOBODY:
            who, why = Holds.CANDIDATE, self._shade
        if who is Holds.CANDIDATE:
            self.found.faults.append((node.lineno, why))
        self.found.held |= who is Holds.JUDGE


def _cells(row: ast.expr) -> list[ast.expr]:
    """Return the values of one row of parameters."""
    if isinstance(row, ast.Call) and last(row.func) == "param":
        return row.args
    return row.elts if isinstance(row, ast.Tuple | ast.List) else [row]


def _cell(row: list[ast.expr], at: int, width: int) -> ast.expr:
    return row[at] if len(row) == width else ast.Tuple(elts=row, ctx=ast.Load())


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@cache
def _installed(name: str) -> bool:
    """Return whether a module of this name belongs to Python or is installed, wherever this process runs."""
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, folders) is not None
