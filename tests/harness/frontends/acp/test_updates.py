"""Events become updates in order, and an update that cannot be sent ends nothing."""

import os
from typing import Any

import pytest
from acp import schema
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.conversation import Call, Edit
from ostinato.harness.errors import UnexpectedEnvironment
from ostinato.harness.execute import ToolResult
from ostinato.harness.frontends.acp.person import Person
from ostinato.harness.frontends.acp.updates import Updates, title
from ostinato.harness.permissions.rules import Rule
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.users import PermissionRequest


def call(tool: str, id_: str = "c0", **arguments: Any) -> Call:
    return Call(id=id_, name=tool, arguments=arguments, meant=Reading(tool=tool, arguments=arguments))


class Screen:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.gone = False

    async def send(self, update: Any) -> None:
        if self.gone:
            raise ConnectionError("the editor went away")
        self.seen.append(update)


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
async def updates(screen: Screen):
    updates = Updates(screen.send, "/repo")
    updates.max_context = 1000
    yield updates
    await updates.close()


@given(st.binary(min_size=1, max_size=12).map(lambda name: os.fsdecode(name.replace(b"\0", b"\xe9"))))
async def test_a_name_of_any_bytes_reaches_the_editor(name: str):
    screen = Screen()
    updates = Updates(screen.send, "/repo")
    try:
        for tool in ("edit", "todo_write"):
            meant = Reading(tool=tool, arguments={"path": name, "todos": []})
            updates.call(asked := Call(id="c", name=tool, arguments={}, meant=meant))
            updates.edited(asked, Edit(path=name, before=b"x\n", after=b"y\n"))
            updates.result(asked, ToolResult(text="ok"))
        person = Person(None, updates, None, elicits=False)  # type: ignore[arg-type]
        rule = Rule.exactly("edit", name)
        arguments = {"path": name, "old_string": "x", "new_string": "y"}
        request = PermissionRequest(
            call_id="c", tool="edit", arguments=arguments, asks=(name,), grants=(rule,)
        )
        described = await person._described(request)
        await updates.flush()
        for sent in (*screen.seen, described):
            assert sent.model_dump_json()
    finally:
        await updates.close()


async def test_a_call_with_edits_is_shown_as_diffs(updates: Updates, screen: Screen):
    patch = call("apply_patch", patch="…")
    updates.call(patch)
    updates.edited(patch, Edit(path="a.py", before=b"x\n", after=b"y\n"))
    updates.edited(patch, Edit(path="gone.py", before=b"x\n", after=None))
    updates.edited(patch, Edit(path="pic.png", before=None, after=b"\xff\0"))
    updates.result(patch, ToolResult(text="ok"))
    await updates.flush()
    started, done = screen.seen
    assert (started.kind, started.status, done.status) == ("edit", "pending", "completed")
    assert [(d.path, d.old_text, d.new_text) for d in done.content] == [
        ("/repo/a.py", "x\n", "y\n"),
        ("/repo/gone.py", "x\n", ""),
    ]
    assert [place.path for place in done.locations] == ["/repo/a.py", "/repo/gone.py", "/repo/pic.png"]


async def test_the_models_ids_may_come_again(updates: Updates, screen: Screen):
    for _ in range(2):
        updates.call(call("ls"))
        updates.result(call("ls"), ToolResult(text="x"))
    await updates.flush()
    ids = [update.tool_call_id for update in screen.seen]
    assert ids[0] == ids[1] != ids[2] == ids[3]


async def test_an_error_is_failed_and_its_text_shown(updates: Updates, screen: Screen):
    read = call("read", path="/repo/x.py", offset=7)
    updates.call(read)
    updates.result(read, ToolResult(text="error: no", error=UnexpectedEnvironment("no")))
    await updates.flush()
    started, done = screen.seen
    assert (started.locations[0].path, started.locations[0].line) == ("/repo/x.py", 7)
    assert done.status == "failed" and done.content[0].content.text == "error: no"


async def test_output_is_shown_while_it_comes(updates: Updates, screen: Screen):
    make = call("bash", command="make")
    updates.call(make)
    updates.output(make, "one\n")
    updates.output(make, "two\n")
    await updates.flush()
    assert screen.seen[1].status == "in_progress" and screen.seen[1].content[0].content.text == "one\n"
    assert len(screen.seen) == 2, "not oftener than people can read"


async def test_a_plan_that_was_refused_is_not_shown(updates: Updates, screen: Screen):
    todo = call("todo_write", todos=[{"content": "x"}])
    updates.call(todo)
    updates.result(todo, ToolResult(text="error: no", error=UnexpectedEnvironment("no")))
    await updates.flush()
    assert screen.seen == []
    updates.call(todo)
    updates.result(todo, ToolResult(text="ok"))
    await updates.flush()
    (plan,) = screen.seen
    assert (plan.entries[0].status, plan.entries[0].priority) == ("pending", "medium")


async def test_each_message_has_its_own_id(updates: Updates, screen: Screen):
    updates.text("a")
    updates.text("b")
    updates.say("harness")
    updates.text("c")
    await updates.flush()
    ids = [chunk.message_id for chunk in screen.seen]
    assert ids[0] == ids[1] and len(set(ids)) == 3


async def test_stopping_fails_what_runs(updates: Updates, screen: Screen):
    updates.call(call("bash", command="sleep"))
    updates.stop()
    updates.stop()
    await updates.flush()
    assert [update.status for update in screen.seen] == ["pending", "failed"]


async def test_an_editor_that_went_away_stops_nothing(updates: Updates, screen: Screen):
    screen.gone = True
    updates.text("a")
    await updates.flush()
    screen.gone = False
    updates.text("b")
    await updates.flush()
    assert isinstance(screen.seen[0], schema.AgentMessageChunk)


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("bash", {"command": "cd x\nmake"}, "bash: cd x …"),
        ("ls", {}, "ls"),
        ("github_search", {"q": "é"}, 'github_search: {"q": "é"}'),
        ("read", {"path": 5}, "read: 5"),
        ("bash", {"command": "x" * 999}, "bash: " + "x" * 193 + "…"),
    ],
)
def test_titles(tool: str, arguments: dict[str, Any], shown: str):
    assert title(tool, arguments) == shown
