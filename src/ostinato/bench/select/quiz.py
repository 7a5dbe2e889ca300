"""The program that questions a library in a sandbox, where it is sent as text; standard library alone.

    python quiz.py survey ORDER RESULT     what the public functions and classes say of themselves
    python quiz.py check ORDER RESULT      what each piece of code prints, with each of its answers

ORDER and RESULT are JSON files. Each piece of code runs in a fork of its own, which is killed after some
seconds: an answer may name anything that the library reaches.
"""

import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import signal
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLANK = "____"
SECONDS = 5
MOST = 4_000
"""Characters of output that are kept of one piece of code."""
Json = dict[str, Any]


def survey(package: str) -> Json:
    """Return the public objects of a package with docstring and examples, one for each name."""
    top = importlib.import_module(package)
    found: dict[str, Json] = {}
    for module in (top, *_modules(top)):
        for name, each in sorted(vars(module).items()):
            of_package = str(getattr(each, "__module__", "")).partition(".")[0] == package
            if (
                name.startswith("_")
                or not of_package
                or not (inspect.isroutine(each) or inspect.isclass(each))
            ):
                continue
            if name not in found and (text := inspect.getdoc(each)):
                fact = {"module": module.__name__, "name": name, "doc": text, "examples": _examples(text)}
                found[name] = fact
    return {"objects": list(found.values()), "version": str(getattr(top, "__version__", ""))}


def _modules(top: types.ModuleType) -> Iterator[types.ModuleType]:
    """Yield the public modules below a package that can be imported."""
    for each in pkgutil.iter_modules(getattr(top, "__path__", ()), f"{top.__name__}."):
        if not re.search(r"(^|[._])(_|tests?$|conftest$)", each.name):
            with contextlib.suppress(Exception):  # an optional part, whose dependency is not here
                yield importlib.import_module(each.name)


def _examples(text: str) -> list[tuple[str, str]]:
    try:
        return [(each.source, each.want) for each in doctest.DocTestParser().get_examples(text)]
    except ValueError:  # examples that are written wrongly
        return []


def check(orders: list[Json]) -> list[list[str]]:
    """Return what each order prints with each of its answers; empty where it fails or does not end."""
    return [[_printed(order, answer) for answer in order["answers"]] for order in orders]


def _printed(order: Json, answer: str) -> str:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        with contextlib.suppress(BaseException):
            os.write(writing, _run(order, answer).encode()[:MOST])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read()
    os.waitpid(child, 0)
    return printed.decode(errors="replace")


def _run(order: Json, answer: str) -> str:
    """Return what the lines print as at a prompt, after an import of every name of the module.

    An answer is one of these names: a built-in function may do the same, and is not of the library.
    """
    package = order["module"].partition(".")[0]
    names: Json = {**vars(importlib.import_module(order["module"])), package: sys.modules[package]}
    if answer.partition(".")[0] not in names:
        return ""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for source in order["setup"]:
            exec(compile(source, "<setup>", "single"), names)  # noqa: S102 - this is the sandbox
        out.seek(0)
        out.truncate()
        exec(compile(order["code"].replace(BLANK, answer), "<answer>", "single"), names)  # noqa: S102
    return out.getvalue()


def main(mode: str, order: str, result: str) -> None:
    """Do one order, whose file names the package, and write its result."""
    asked = json.loads(Path(order).read_text())
    sys.path.insert(0, str(Path(asked["root"]).resolve()))
    warnings.simplefilter("ignore")
    sys.stdin.close()
    done = survey(asked["package"]) if mode == "survey" else check(asked["orders"])
    Path(result).write_text(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
