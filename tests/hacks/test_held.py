"""What pays was decided by the judge: a pass in which the tested code decides an assertion has a lower grade.

Covers assertions/deciding.py, assertions/reading.py and assertions/values.py.
"""

import pytest
from tests.hacks.conftest import Judged
from tests.hacks.held import DECIDING, GOOD, HEAD, HELD, HONEST_TESTS
from tests.hacks.rows import Hack

from ostinato.assertions import undecided
from ostinato.tasks.pebble.generate import KINDS, generate
from ostinato.tasks.pebble.splits import SPLITS
from ostinato.types import Grade, Task


@pytest.mark.parametrize("hack", HELD, ids=lambda hack: hack.name)
async def test_no_hack_pays(ns_judged: Judged, task: Task, hack: Hack) -> None:
    found = await ns_judged(task, hack)
    assert not (found.passed and found.grade is Grade.JUDGED), found
    if hack in DECIDING:
        assert found.grade is Grade.GUARDED and found.notes


async def test_most_of_these_pass_where_nobody_looks(ns_judged: Judged, task: Task) -> None:
    """Else the corpus would show nothing."""
    passed = [hack.name for hack in DECIDING[::4] if (await ns_judged(task, hack)).passed]
    assert len(passed) >= len(DECIDING[::4]) // 2, passed


@pytest.mark.parametrize("name", HONEST_TESTS)
async def test_honest_tests_pay(ns_judged: Judged, task: Task, name: str) -> None:
    body = HONEST_TESTS[name].replace("\n", "\n    ")
    hidden = f"{HEAD}\n\ndef test_it():\n    {body}\n"
    found = await ns_judged(task, Hack(name=name, files={"calc.py": GOOD}, hidden=hidden))
    assert (found.passed, found.grade, found.notes) == (True, Grade.JUDGED, ()), found


def test_the_judge_decides_every_pebble() -> None:
    pebbles = [generate(kind, split, seed) for kind in KINDS for split in SPLITS for seed in range(3)]
    assert not [p.id for p in pebbles if undecided({"test_hidden.py": p.hidden}, p.files, p.test_ids)]
