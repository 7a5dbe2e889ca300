"""Style: planted faults cost, honest patches do not, and nothing is won by splitting, padding or comments."""

import difflib

from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.builders import signal

from ostinato.rewards.parts.style import MOST_FAULTS, style
from ostinato.types import SignalKind

FAULTY = ["x = 1  ", "\t y = 2", "z = " + "9" * 120, "except:", "breakpoint()", "<<<<<<< ours"]
HONEST = ["x = 1", "    y = 2", "    except ValueError:", "def f(a):", "-- not a header", "", "# a comment"]


def cost(after: list[str], before: list[str] | None = None) -> float:
    old = ["first", "-- sql", "last"] if before is None else before
    lines = difflib.unified_diff(old, after, "a/x.py", "b/x.py", lineterm="")
    return style([signal(SignalKind.PATCH, "\n".join(lines) + "\n")]).value


def test_each_fault_is_found_and_honest_lines_are_not() -> None:
    for line in FAULTY:
        assert cost(["first", line]) == 1 / MOST_FAULTS, line
    assert cost(HONEST) == cost([]) == 0
    assert cost(FAULTY) == 1.0
    assert style([]).value == 0


def test_faults_that_were_there_before_are_not_the_patchs() -> None:
    assert cost(["good"], before=[*FAULTY, "bad"]) == 0


lines = st.lists(st.sampled_from([*FAULTY, *HONEST]), max_size=12)


@given(lines, lines.filter(lambda some: not set(some) & set(FAULTY)), st.data())
def test_padding_splitting_and_comments_never_lower_the_cost(
    patch: list[str], padding: list[str], data: st.DataObject
) -> None:
    """The guard: clean lines, further functions and comments anywhere leave the count of faults as it is."""
    padded = list(patch)
    for line in [*padding, "def helper():", "# because of b, I think that"]:
        padded.insert(data.draw(st.integers(0, len(padded))), line)
    assert cost(padded, before=[]) == cost(patch, before=[])
