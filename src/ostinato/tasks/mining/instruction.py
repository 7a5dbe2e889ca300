"""The wording of a mined task at three levels of detail; the shortest is as terse as people are."""

from collections.abc import Sequence
from random import Random

from ostinato.tasks.mining.faults import Fault

LEVELS = ("terse", "plain", "full")
TERSE = (
    "{name} in {path} is off",
    "fix {name} in {path}",
    "bug in {name} ({path})",
    "{name} in {path} does the wrong thing",
)
TERSE_REMOVED = ("implement {name} in {path}", "{name} in {path} is missing its body")
SHOWN = 5
"""The failing tests that the longest form names."""


def instructions(
    fault: Fault, messages: Sequence[str], visible: Sequence[str], hidden: int, rng: Random
) -> dict[str, str]:
    """Return the request at each level.

    `messages` say why tests fail, `visible` names failing tests that the repository has, and `hidden` counts
    those that it lacks.
    """
    removed = fault.kind == "removed body"
    terse = rng.choice(TERSE_REMOVED if removed else TERSE).format(name=fault.function, path=fault.path)
    if removed:
        plain = (
            f"`{fault.function}` in `{fault.path}` has no implementation. Write it, so that it does what its "
            "docstring says and its callers expect."
        )
    else:
        plain = f"`{fault.function}` in `{fault.path}` does not do what it should."
        if said := next((message for message in messages if message.strip()), ""):
            plain += f" One of its tests fails with `{_one_line(said)}`."
        plain += " Find the cause and correct it."
    return {"terse": terse, "plain": plain, "full": f"{plain}\n\n{_tests(visible, hidden)}"}


def _one_line(message: str) -> str:
    return " ".join(message.replace("`", "'").split())[:160]


def _tests(visible: Sequence[str], hidden: int) -> str:
    lines = [f"- `{name}`" for name in visible[:SHOWN]]
    if len(visible) > SHOWN:
        lines.append(f"- and {len(visible) - SHOWN} more")
    text = "Tests that fail now and should pass:\n\n" + "\n".join(lines) if lines else ""
    if hidden:
        more = f"{hidden} {'test' if hidden == 1 else 'tests'} that the repository does not have"
        text = f"{text}\n\nThe work is checked by {more}." if text else f"The work is checked by {more}."
    return f"{text} Leave the tests and the settings of the repository as they are."
