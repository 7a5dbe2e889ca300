"""Calls of one reply that only read run at the same time; nothing else about a session changes."""

import asyncio
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.test_agent import EDIT, Watching, calls, says

from ostinato.harness import ahead
from ostinato.harness.agent import Agent
from ostinato.harness.conversation import Call
from ostinato.harness.execute import ToolResult
from ostinato.harness.permissions.rules import Action, Judgement, Permissions, Rule
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.scripted import ScriptedClient
from ostinato.harness.users import Grant, ScriptedUser
from ostinato.sandbox.base import Sandbox


def call(name: str, *, reads: bool) -> Call:
    return Call(id=name, name=name, arguments={}, meant=Reading(tool=name, arguments={}, reads=reads))


@given(st.lists(st.booleans(), max_size=12), st.integers())
def test_reads_overlap_and_everything_else_waits(reads: list[bool], seed: int) -> None:
    """Whatever the calls take: what is not a read runs alone, and results have the order of the reply."""
    random, running, ended = Random(seed), set[str](), list[str]()

    async def allowed(_: Call) -> Judgement:
        return Judgement(action=Action.ALLOW)

    async def result(each: Call) -> ToolResult:
        assert each.meant.reads or not running
        assert not running or all(reads[int(other)] for other in running)
        running.add(each.name)
        for _ in range(random.randrange(5)):
            await asyncio.sleep(0)
        running.remove(each.name)
        return ToolResult(text=each.name)

    async def all_of_them() -> None:
        for run in ahead.runs(listed):
            async with ahead.begun(run, allowed, result) as starts:
                for start in starts:
                    ended.append((await start()).text)

    listed = [call(str(number), reads=each) for number, each in enumerate(reads)]
    assert list(chain(*ahead.runs(listed))) == listed
    asyncio.run(all_of_them())
    assert ended == [each.name for each in listed] and not running


async def test_all_reads_have_begun_before_the_first_ends() -> None:
    meeting = asyncio.Barrier(ahead.AT_ONCE)

    async def allowed(_: Call) -> Judgement:
        return Judgement(action=Action.ALLOW)

    async def result(each: Call) -> ToolResult:
        await meeting.wait()
        return ToolResult(text=each.name)

    run = [call(str(number), reads=True) for number in range(ahead.AT_ONCE)]
    async with ahead.begun(run, allowed, result) as starts:
        assert [(await start()).text for start in starts] == [each.name for each in run]


READS = [
    ("read", {"path": "calc.py"}),
    ("grep", {"pattern": "alpha"}),
    ("ls", {}),
    ("read", {"path": "no.py"}),
]


async def test_the_model_reads_what_it_would_read_one_by_one(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.write("AGENTS.md", b"be brief\n")
    await sandbox.write("pkg/AGENTS.md", b"be very brief\n")
    below = [("read", {"path": "pkg/util.py"}), ("read", {"path": "pkg/AGENTS.md"})]
    both = []
    for one_by_one in (False, True):
        if one_by_one:
            monkeypatch.setattr(ahead, "runs", lambda listed: [[each] for each in listed])
        client, watching = ScriptedClient([calls(*READS, EDIT, *READS, *below), says("done")]), Watching()
        await Agent(client, sandbox, ScriptedUser([]), observer=watching).run("go", session_id="s1")
        both.append((client.asked[-1].messages, watching.seen))
        await sandbox.write("calc.py", (await sandbox.read("calc.py")).replace(b"a + b", b"a - b"))
    assert both[0] == both[1]
    texts = [message["content"] for message in both[0][0] if message["role"] == "tool"]
    assert "a - b" in texts[0] and "a + b" in texts[5] and texts[-2].endswith("be very brief")


async def test_a_read_that_must_be_asked_waits_for_its_answer(sandbox: Sandbox) -> None:
    rules = [
        Rule(tool="*", pattern="*", action=Action.ALLOW),
        Rule(tool="read", pattern="pkg/*", action=Action.ASK),
    ]
    user = ScriptedUser([], [Grant.NO])
    reply = calls(READS[0], ("read", {"path": "pkg/util.py"}), READS[1])
    client = ScriptedClient([reply, says("done")])
    await Agent(client, sandbox, user, permissions=Permissions(rules)).run("go", session_id="s1")
    texts = [message["content"] for message in client.asked[-1].messages if message["role"] == "tool"]
    assert (
        "def alpha" in texts[0]
        and texts[1] == "error: not permitted by the user"
        and "calc.py:1:" in texts[2]
    )
