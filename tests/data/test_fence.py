"""The fence: a block of a task's text is found, what all programs share is not."""

from hypothesis import given
from hypothesis import strategies as st
from tests.data.toolbox import program

from ostinato.data.fence import SHARED, WORDS, Fence

TASK = " ".join(f"w{number}" for number in range(200))


@given(st.integers(0, 160), st.integers(1, 60))
def test_a_block_of_thirty_two_words_of_a_task_is_found_wherever_it_is(at: int, count: int) -> None:
    block = TASK.split()[at : at + count]
    found = Fence([program(1), TASK]).shares(f"{program(2)} {' '.join(block).upper()} {program(3)}")
    assert found is (len(block) >= WORDS + SHARED - 1)


def test_a_short_task_needs_half_of_its_runs() -> None:
    short = " ".join(TASK.split()[:20])
    assert Fence([short]).shares("x " + " ".join(TASK.split()[:16]))
    assert not Fence([short]).shares(" ".join(TASK.split()[:15]))
    assert len(Fence([short, ""])) == 2 and not Fence(["", "too short"]).shares(TASK)
