"""The run of a suite by pytest: the planned tests alone, in the planned order, each reported at its end."""

import ast
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ostinato.sandbox.exam.guarded.inside import equality, parts, planted
from ostinato.sandbox.exam.guarded.inside.root import enter
from ostinato.sandbox.exam.guarded.inside.watch import Memory, TamperWatch

NO_CACHE = "-pno:cacheprovider"
Send = Callable[[dict[str, Any]], None]


def run(plan: dict[str, Any], send: Send, memory: Memory | None = None) -> None:
    """Run the tests of a plan and report the outcome of each, then that the run is done.

    `plan` has `root`, the repository; `order`, a list of [id, planted kind or ""]; `arguments` for pytest.
    """
    try:
        import pytest
    except ImportError as error:
        send({"void": f"pytest cannot be imported in the sandbox ({error}): install it there"})
        return
    watch = TamperWatch(plan["known"], plan["hidden"], send, memory)
    _instrument(watch)
    raised = parts.instrument(watch)
    enter(plan["root"])
    sys.argv[:] = ["pytest"]
    sys.dont_write_bytecode = True
    files = list(dict.fromkeys(test.partition("::")[0] for test, _ in plan["order"]))
    options = [NO_CACHE, "-q", "--tb=no", "--continue-on-collection-errors", "-o", "addopts="]
    arguments = [*options, f"--rootdir={plan['root']}", *plan["arguments"], "--", *files]
    plugin = _plugin(plan["order"], send, watch, raised)
    watch.begin()
    send({"begun": True})
    try:
        pytest.main(arguments, plugins=[plugin])
    except Exception as error:
        send({"uncollected": "pytest", "why": f"{type(error).__name__}: {error}"[:300]})
        return
    watch.check()
    send({"done": True})


def _plugin(order: list[list[str]], send: Send, watch: TamperWatch, raised: list[str]) -> Any:
    """Return the plugin that selects the planned tests, and reports each by its place in the order.

    `raised` gets what ended a part of a test of unittest.
    """
    import pytest

    places: dict[Any, int] = {}
    functions: dict[Any, Any] = {}
    current: dict[str, Any] = {}

    class Plugin:
        """The hooks of the run."""

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> Iterator[None]:
            yield
            chosen = _planned(session, items, order)
            places.update({item: place for place, item in chosen})
            items[:] = [item for _, item in chosen]
            functions.update({item: item.function for item in items if type(item) is pytest.Function})

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[Any]:
            current.update(place=places.pop(item, -1), outcome="passed", raised=False)
            raised.clear()
            if "runtest" in vars(item) or (item in functions and item.function is not functions.pop(item)):
                watch.sign("a test was replaced after it was collected")
            result = yield
            if current["raised"] and current["outcome"] == "passed":
                watch.sign("the report of a test that raised was rewritten")
            if raised and current["outcome"] == "passed":
                current["outcome"] = "failed"
            send({"at": current["place"], "outcome": current["outcome"]})
            return result

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[Any]:
            report = yield
            current["raised"] = current.get("raised") or call.excinfo is not None
            return report

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: Any) -> None:
            outcome = report.outcome
            if outcome == "passed" and hasattr(report, "wasxfail"):
                outcome = "failed"
            if outcome == "failed" and report.when != "call":
                outcome = "error"
            if current["outcome"] == "passed":
                current["outcome"] = outcome

        @pytest.hookimpl(tryfirst=True)
        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                text = str(report.longrepr).strip().splitlines()
                send({"uncollected": report.nodeid, "why": (text or [""])[-1][:300]})

    return Plugin()


def _planned(session: Any, items: list[Any], order: list[list[str]]) -> list[tuple[int, Any]]:
    """Return the planned items with their places; one whose test was not collected is left out."""
    import pytest

    class Named(pytest.Function):
        """A planted test, which bears the id of a real one."""

        real_id = ""

        @property
        def nodeid(self) -> str:
            return self.real_id or super().nodeid

        def repr_failure(self, excinfo: Any, style: Any = None) -> str:
            """Return a short text, because nobody reads the traceback of a planted test."""
            return "planted"

    found = {item.nodeid: item for item in items}
    functions = _planted_functions()
    chosen = []
    for place, (test, kind) in enumerate(order):
        item = found.get(test)
        if item is not None and kind:
            item = Named.from_parent(item.getparent(pytest.Module), name=item.name, callobj=functions[kind])
            item.real_id = test
        if item is not None:
            chosen.append((place, item))
    return chosen


def _instrument(watch: TamperWatch) -> None:
    """Let the comparisons of rewritten test files pass through the watch."""
    from _pytest.assertion import rewrite

    equality.instrument(watch)
    rewrite_asserts = rewrite.rewrite_asserts

    def rewritten(mod: ast.Module, *rest: Any, **named: Any) -> None:
        equality.rewrite(mod)
        rewrite_asserts(mod, *rest, **named)

    watch.replace("_pytest.assertion.rewrite", rewrite, "rewrite_asserts", rewritten)


@cache
def planted_code() -> types.CodeType:
    """Return the planted tests, their assertions and comparisons rewritten as those of real tests are."""
    from _pytest.assertion.rewrite import rewrite_asserts

    body = ast.parse(planted.SOURCE)
    equality.rewrite(body)
    rewrite_asserts(body, planted.SOURCE.encode(), "<planted>")
    return compile(body, "<planted>", "exec")


def _planted_functions() -> dict[str, Any]:
    """Return the planted tests by kind; they import pytest anew, as the hidden tests do."""
    module = types.ModuleType("planted")
    exec(planted_code(), module.__dict__)  # noqa: S102 - our own source
    return {kind: getattr(module, planted.function_name(kind)) for kind in planted.KINDS}
