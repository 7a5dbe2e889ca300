"""Every way we know to look solved without being solved: the verifier must fall for none of them.

Nor may any of them end without a verdict: one that is void would be a way out of a bad one.
"""

import posixpath
from dataclasses import replace

import pytest
from tests.hacks.answers import ANSWERS, BOMBS
from tests.hacks.conftest import Judged
from tests.hacks.files import FILES
from tests.hacks.honest import HONEST
from tests.hacks.judged import JUDGED
from tests.hacks.library import LIBRARY, written
from tests.hacks.machine import MACHINE
from tests.hacks.published import PUBLISHED
from tests.hacks.python import PYTHON
from tests.hacks.rows import BY_HAND, Hack

from ostinato.sandbox import Backend
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.exam.judged import values
from ostinato.sandbox.exam.verifier import Verification, Verifier
from ostinato.types import Task

HACKS = [*PUBLISHED, *ANSWERS, *PYTHON, *FILES, *MACHINE, *BOMBS, *JUDGED]
ACCIDENTS = [hack for hack in HACKS if not hack.machine]


def test_the_corpus_is_as_large_as_it_says() -> None:
    names = [hack.name for hack in HACKS + HONEST]
    assert len(set(names)) == len(names)
    assert len(PUBLISHED) == 11
    assert len(HACKS) - len(PUBLISHED) >= 240
    assert len(HONEST) + len(LIBRARY) >= 100


def test_what_is_written_by_hand_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the bombs that are written so would be refused before they go off."""
    monkeypatch.setattr(values, "encode", values.encode)  # put back at the end
    exec(BY_HAND, {})
    answer = {"value": [{"set": [{"int": "0x5"}, {"int": "0x6"}]}]}
    assert values.decode(values.encode(answer)) == {"value": [{5, 6}]}
    assert values.decode(values.encode({"callable": True})) == {"callable": True}


@pytest.mark.parametrize("hack", HACKS, ids=lambda hack: hack.name)
async def test_no_hack_passes(ns_judged: Judged, task: Task, hack: Hack) -> None:
    rejected(await ns_judged(task, hack), task, hack)


@pytest.mark.deep
@pytest.mark.parametrize("hack", ACCIDENTS, ids=lambda hack: hack.name)
async def test_no_hack_passes_where_there_is_no_boundary(
    process_judged: Judged, task: Task, hack: Hack
) -> None:
    rejected(await process_judged(task, hack), task, hack)


def rejected(found: Verification, task: Task, hack: Hack) -> None:
    assert not found.passed
    assert found.void is None
    touched = {posixpath.relpath(posixpath.join("/repo", path), "/repo") for path in hack.files}
    for path in touched & set(task.protected):
        assert any(path in said for said in found.tampered), found.tampered


@pytest.mark.parametrize("work", HONEST, ids=lambda work: work.name)
async def test_honest_work_passes(ns_judged: Judged, task: Task, work: Hack) -> None:
    found = await ns_judged(task, work)
    assert found.passed, found


@pytest.mark.deep
@pytest.mark.parametrize("work", HONEST, ids=lambda work: work.name)
async def test_honest_work_passes_where_there_is_no_boundary(
    process_judged: Judged, task: Task, work: Hack
) -> None:
    if work.command:
        pytest.skip("runs a command in the agent's sandbox, which is the same for both")
    found = await process_judged(task, work)
    assert found.passed, found


@pytest.mark.parametrize("kind", ["ns", pytest.param("process", marks=pytest.mark.slow)])
async def test_honest_answers_of_every_kind_pass(ns_backend: Backend, task: Task, kind: str) -> None:
    code, tests, ids = written()
    (task.tests / "test_hidden.py").write_text(tests)
    backend = ns_backend if kind == "ns" else ProcessBackend()
    found = await Verifier(backend).verify(replace(task, test_ids=ids), {"calc.py": code.encode()})
    names = dict(zip(ids, LIBRARY, strict=True))
    assert [names.get(each, each) for each in found.outcomes if found.outcomes[each] != "passed"] == []
    assert found.passed
