"""What test programs of any language write, read as outcomes by test id: JUnit XML, TAP, Harbor's reward.

An id that occurs twice has its worst outcome. What cannot be read is no outcome at all: the verifier then
misses the tests it expects, and nothing has passed.
"""

import re
from collections.abc import Callable, Mapping
from xml.parsers import expat

ORDER = ("passed", "skipped", "failed", "error")
"""From best to worst."""
_CHILDREN = {"failure": "failed", "error": "error", "skipped": "skipped"}
_TEST = re.compile(r"(not )?ok\b\s*(\d+)?\s*(?:- )?(.*)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(skip|todo)\b.*", re.IGNORECASE)
_PLAN = re.compile(r"1\.\.(\d{1,9})(?!\d)")


class ReportError(ValueError):
    """Not a report: says where it stops to be one."""


def junit(data: bytes) -> dict[str, str]:
    """Outcomes of JUnit XML, by `classname::name`, or `name` where no class is given.

    A document type is refused: entities could make a small report endless.
    """
    found: dict[str, str] = {}
    current: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "testcase":
            name = attributes.get("name", "")
            current[:] = [f"{attributes['classname']}::{name}" if attributes.get("classname") else name]
            _note(found, current[0], "passed")
        elif current and tag in _CHILDREN:
            _note(found, current[0], _CHILDREN[tag])

    def end(tag: str) -> None:
        if tag == "testcase":
            current.clear()

    def refuse(*_: object) -> None:
        raise ReportError("a document type has no place in a report")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except ReportError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as error:  # the latter two for odd encodings
        raise ReportError(f"not XML: {error}") from error
    return found


def tap(data: bytes) -> dict[str, str]:
    """Outcomes of TAP (version 12 to 14) by description, by number where there is none.

    Subtests, which are indented, count by their parent's line. Raises ReportError when the plan is not kept
    or the run bailed out: then nobody knows what is missing.
    """
    found: dict[str, str] = {}
    count, plan = 0, None
    for line in data.decode(errors="replace").splitlines():
        if line.lower().startswith("bail out!"):
            raise ReportError(line[:200])
        if planned := _PLAN.match(line):
            plan = int(planned[1])
        elif test := _TEST.match(line):
            count += 1
            _note(found, *_tap_outcome(test, count))
    if plan is None or plan != count:
        raise ReportError(f"{count} tests, the plan says {plan}")
    return found


def _tap_outcome(test: re.Match[str], count: int) -> tuple[str, str]:
    failed, number, rest = test.groups()
    directive = _DIRECTIVE.search(rest)
    name = (rest[: directive.start()] if directive else rest).strip() or number or str(count)
    kind = directive[1].lower() if directive else ""
    if kind == "skip":
        return name, "skipped"
    return name, "failed" if failed or kind == "todo" else "passed"  # an unexpected success is no pass either


def reward(data: bytes) -> dict[str, str]:
    """Harbor's `reward.txt`: one test named `reward`, passed from 1 on."""
    try:
        value = float(data.decode().strip())
    except ValueError as error:
        raise ReportError(f"not a number: {error}") from error
    return {"reward": "passed" if value >= 1 else "failed"}


def _note(found: dict[str, str], name: str, outcome: str) -> None:
    found[name] = max(found.get(name, "passed"), outcome, key=ORDER.index)


READERS: Mapping[str, Callable[[bytes], dict[str, str]]] = {"junit": junit, "tap": tap, "reward": reward}
