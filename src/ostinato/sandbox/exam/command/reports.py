"""Readers for the reports of test programs: JUnit XML, TAP and Harbor's reward become outcomes by test id.

An id that occurs twice gets its worst outcome. A report that cannot be read has no outcomes: the verifier
then misses the expected tests, and the exam fails.
"""

import re
from collections.abc import Callable, Mapping
from xml.parsers import expat

ORDER = ("passed", "skipped", "failed", "error")
"""The outcomes from best to worst."""
_CHILDREN = {"failure": "failed", "error": "error", "skipped": "skipped"}
_TEST = re.compile(r"(not )?ok\b\s*(\d+)?\s*(?:- )?(.*)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(skip|todo)\b.*", re.IGNORECASE)
_PLAN = re.compile(r"1\.\.(\d{1,9})(?!\d)")


class ReportError(ValueError):
    """The data are not a report; the message says where."""


def junit(data: bytes) -> dict[str, str]:
    """Return the outcomes of JUnit XML by `classname::name`, or by `name` without a class.

    A document type is refused, because entities could make a small report endless.
    """
    outcomes: dict[str, str] = {}
    current: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "testcase":
            name = attributes.get("name", "")
            current[:] = [f"{attributes['classname']}::{name}" if attributes.get("classname") else name]
            _note(outcomes, current[0], "passed")
        elif current and tag in _CHILDREN:
            _note(outcomes, current[0], _CHILDREN[tag])

    def end(tag: str) -> None:
        if tag == "testcase":
            current.clear()

    def refuse(*_: object) -> None:
        raise ReportError("a report must not have a document type")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except ReportError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as error:  # the latter two come from unknown encodings
        raise ReportError(f"not XML: {error}") from error
    return outcomes


def tap(data: bytes) -> dict[str, str]:
    """Return the outcomes of TAP (versions 12 to 14) by description, or by number without one.

    Subtests, which are indented, count through their parent's line. Raises ReportError when the plan is not
    kept or the run bailed out, since it is then unknown which tests are missing.
    """
    outcomes: dict[str, str] = {}
    count, plan = 0, None
    for line in data.decode(errors="replace").splitlines():
        if line.lower().startswith("bail out!"):
            raise ReportError(line[:200])
        if planned := _PLAN.match(line):
            plan = int(planned[1])
        elif test := _TEST.match(line):
            count += 1
            _note(outcomes, *_tap_outcome(test, count))
    if plan is None or plan != count:
        raise ReportError(f"{count} tests, the plan says {plan}")
    return outcomes


def _tap_outcome(test: re.Match[str], count: int) -> tuple[str, str]:
    failed, number, rest = test.groups()
    directive = _DIRECTIVE.search(rest)
    name = (rest[: directive.start()] if directive else rest).strip() or number or str(count)
    kind = directive[1].lower() if directive else ""
    if kind == "skip":
        return name, "skipped"
    return (
        name,
        "failed" if failed or kind == "todo" else "passed",
    )  # an unexpected success is not a pass either


def reward(data: bytes) -> dict[str, str]:
    """Return the outcome of Harbor's `reward.txt`: one test named `reward`, which passes from 1 on."""
    try:
        value = float(data.decode().strip())
    except ValueError as error:
        raise ReportError(f"not a number: {error}") from error
    return {"reward": "passed" if value >= 1 else "failed"}


def _note(outcomes: dict[str, str], name: str, outcome: str) -> None:
    outcomes[name] = max(outcomes.get(name, "passed"), outcome, key=ORDER.index)


READERS: Mapping[str, Callable[[bytes], dict[str, str]]] = {"junit": junit, "tap": tap, "reward": reward}
