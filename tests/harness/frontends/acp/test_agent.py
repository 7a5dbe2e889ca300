"""`ostinato acp` as a process, driven by the SDK's client; a real gateway, a scripted model.

Covers harness/frontends/acp/agent.py, harness/frontends/acp/main.py, harness/frontends/acp/session.py,
harness/frontends/acp/person.py and harness/frontends/acp/replay.py.
"""

import asyncio
import json
import sys
from pathlib import Path

import acp
import pytest
from acp import schema
from tests.harness.frontends.acp.toolbox import command, desk, environment

from ostinato.harness.session_log import LogEventKind, Sessions
from ostinato.types import Ending, SignalKind

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def call(name: str, **arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


EDIT = call("edit", path="calc.py", old_string="a - b", new_string="a + b")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def open_desk(gateway: str, repo: Path, state: Path):
    def opened(*options: str, **settings):
        return desk(gateway, repo, state, *options, **settings)

    return opened


async def test_a_prompt_with_an_edit(open_desk, repo, store, script):
    script += ["I look first.\n" + call("read", path="calc.py"), EDIT, "alpha adds now"]
    async with open_desk() as desk:
        session = await desk.begin()
        assert await desk.prompt(session) == "end_turn"
        await desk.agent.close_session(session_id=session)
    assert "a + b" in (repo / "calc.py").read_text()
    editor = desk.editor
    assert editor.said == "I look first.alpha adds now" and len(editor.noticed) == 1
    assert editor.calls == [("read: calc.py", "completed"), ("edit: calc.py", "completed")]
    read, edit = editor.of(schema.ToolCallStart)
    assert (read.kind, edit.kind) == ("read", "edit")
    assert read.locations[0].path == str(repo / "calc.py") and edit.raw_input["old_string"] == "a - b"
    (diff,) = editor.of(schema.ToolCallProgress)[-1].content
    assert (diff.type, diff.path) == ("diff", str(repo / "calc.py"))
    assert "a - b" in diff.old_text and "a + b" in diff.new_text
    usage = editor.of(schema.UsageUpdate)[-1]
    assert 0 < usage.used < usage.size == 32_000
    ids = {chunk.message_id for chunk in editor.of(schema.AgentMessageChunk)}
    assert len(ids) == 3  # the notice and the two messages
    (recorded,) = [each for each in store.sessions() if each.id == session]
    assert recorded.ending is Ending.FINISHED


async def test_a_rejected_edit_is_an_observation_and_a_signal(open_desk, repo, store, script, prompts):
    script += [EDIT, EDIT, "I leave it"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.agent.set_config_option(config_id="mode", session_id=session, value="ask")
        desk.editor.permits += ["reject_once", "reject_always"]
        assert await desk.prompt(session) == "end_turn"
        shown, kinds = desk.editor.asked[0]
        assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
        diff, words = shown.content
        assert diff.path == str(repo / "calc.py") and "a + b" in diff.new_text
        assert "allow edit: calc.py" in words.content.text
        assert shown.tool_call_id == desk.editor.of(schema.ToolCallStart)[0].tool_call_id
        await desk.agent.close_session(session_id=session)
    assert "a - b" in (repo / "calc.py").read_text()
    assert [status for _, status in desk.editor.calls] == ["failed", "failed"]
    assert "not permitted" in prompts[1]
    decisions = [s for s in store.signals(session) if s.kind is SignalKind.TOOL_DECISION]
    assert [(s.value, s.turn) for s in decisions] == [(0.0, 0), (0.0, 1)]


async def test_allowed_for_the_session_is_not_asked_again(open_desk, repo, script):
    back = call("edit", path="calc.py", old_string="a + b", new_string="a * b")
    script += [EDIT, back, "done"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.agent.set_config_option(config_id="mode", session_id=session, value="ask")
        desk.editor.permits += ["allow_always"]
        assert await desk.prompt(session) == "end_turn"
    assert len(desk.editor.asked) == 1 and "a * b" in (repo / "calc.py").read_text()


async def test_rejected_for_the_session_is_not_asked_again(open_desk, script):
    script += [EDIT, EDIT, "done"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.agent.set_config_option(config_id="mode", session_id=session, value="ask")
        desk.editor.permits += ["reject_always"]
        assert await desk.prompt(session) == "end_turn"
    assert len(desk.editor.asked) == 1


async def test_commands_are_asked_and_their_output_shown(open_desk, script):
    script += [call("bash", command="echo hello; exit 3"), "done"]
    async with open_desk() as desk:
        session = await desk.begin()
        desk.editor.permits += ["allow_once"]
        assert await desk.prompt(session) == "end_turn"
    assert desk.editor.calls == [("bash: echo hello; exit 3", "completed")]
    assert desk.editor.of(schema.ToolCallStart)[0].kind == "execute"
    assert desk.editor.of(schema.ToolCallProgress)[-1].content[0].content.text == "hello\n[exit code 3]"


async def test_a_closed_dialog_is_a_no(open_desk, script):
    script += [call("bash", command="make"), "done"]
    async with open_desk() as desk:
        session = await desk.begin()
        desk.editor.permits += ["cancel"]
        assert await desk.prompt(session) == "end_turn"
    assert desk.editor.calls == [("bash: make", "failed")]


async def test_an_editor_that_cannot_ask_is_a_no(open_desk, script, prompts):
    script += [call("bash", command="make"), call("ask_user", question="Which?"), "done"]
    async with open_desk(forms=True) as desk:
        session = await desk.begin()
        desk.editor.permits += ["fail"]
        desk.editor.answers += ["fail"]
        assert await desk.prompt(session) == "end_turn"
    assert "not permitted" in prompts[1] and "could not ask" in prompts[2]


async def test_a_session_open_elsewhere_is_refused(open_desk, repo, script):
    script += ["done"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.prompt(session)
        async with open_desk() as other:
            with pytest.raises(acp.RequestError, match="open in another process"):
                await other.agent.load_session(cwd=str(repo), session_id=session, mcp_servers=[])


async def test_the_editors_mcp_servers_are_tools(open_desk, repo, script):
    script += [call("mcp__my-tickets__add", a=2, b=3), "five", "again"]
    program = str(Path(__file__).parents[2] / "providers" / "mcp_server.py")
    alive = schema.McpServerStdio(name="my tickets", command=sys.executable, args=[program], env=[])
    dead = schema.McpServerStdio(name="gone", command="/no/such/program", args=[], env=[])
    async with open_desk() as desk:
        new = await desk.agent.new_session(cwd=str(repo), mcp_servers=[alive, dead])
        desk.editor.permits += ["allow_once"]
        assert await desk.prompt(new.session_id) == "end_turn"
        assert "gone" in desk.editor.said and desk.editor.said.endswith("five")
        assert [status for _, status in desk.editor.calls] == ["completed"]
        (call_,) = desk.editor.of(schema.ToolCallProgress)
        assert call_.content[0].content.text == "5"


async def test_todos_are_the_plan(open_desk, script):
    todos = [
        {"content": "look", "status": "completed", "priority": "high"},
        {"content": "edit", "status": "in_progress", "priority": "low"},
    ]
    script += [call("todo_write", todos=todos), "done"]
    async with open_desk("--profile", "full") as desk:
        session = await desk.begin()
        assert await desk.prompt(session) == "end_turn"
    (plan,) = desk.editor.of(schema.AgentPlanUpdate)
    assert [entry.model_dump(exclude={"field_meta"}) for entry in plan.entries] == todos
    assert desk.editor.calls == []


async def test_a_question_is_a_form_where_the_editor_has_forms(open_desk, script, prompts):
    script += [call("ask_user", question="Which sign?"), call("ask_user", question="Sure?"), "done"]
    async with open_desk(forms=True) as desk:
        session = await desk.begin()
        desk.editor.answers += ["plus", None]
        assert await desk.prompt(session) == "end_turn"
    assert desk.editor.forms == ["Which sign?", "Sure?"]
    assert "plus" in prompts[1] and "did not answer" in prompts[2]


async def test_a_question_ends_the_turn_where_it_has_none(open_desk, script, prompts):
    script += [call("ask_user", question="Which sign?"), "plus it is", "and on"]
    async with open_desk() as desk:
        session = await desk.begin()
        assert await desk.prompt(session) == "end_turn"
        assert desk.editor.said == "Which sign?"
        assert await desk.prompt(session, "plus") == "end_turn"
        assert desk.editor.said == "Which sign?plus it is"
        assert await desk.prompt(session, "go on") == "end_turn"
    assert "<tool_response>" in prompts[1] and "plus" in prompts[1].rpartition("<tool_response>")[2]


async def test_cancel_in_the_middle_leaves_the_session_usable(open_desk, repo, script):
    script += [call("bash", command="sleep 60")]
    async with open_desk() as desk:
        session = await desk.begin()
        desk.editor.permits += ["allow_once"]
        prompt = asyncio.create_task(desk.prompt(session))
        await desk.editor.until(lambda: desk.editor.asked)
        await desk.agent.cancel(session_id=session)
        assert await prompt == "cancelled"
        assert desk.editor.calls == [("bash: sleep 60", "failed")]
        script.append("back again")
        assert await desk.prompt(session, "go on") == "end_turn"
        assert desk.editor.said == "back again"


async def test_cancel_while_the_model_speaks_and_while_a_dialog_is_open(open_desk, script, prompts):
    async with open_desk() as desk:
        session = await desk.begin()
        prompt = asyncio.create_task(desk.prompt(session))
        while not prompts:
            await asyncio.sleep(0.01)
        await desk.agent.cancel(session_id=session)
        assert await prompt == "cancelled"
        script += [call("bash", command="make")]
        desk.editor.permits += ["wait"]
        prompt = asyncio.create_task(desk.prompt(session))
        await desk.editor.until(lambda: desk.editor.asked)
        with pytest.raises(acp.RequestError, match="at work on a prompt"):
            await desk.prompt(session)
        await desk.agent.cancel(session_id=session)
        assert await prompt == "cancelled"
        await desk.agent.cancel(session_id="unknown")


async def test_a_session_is_loaded_after_kill_9(open_desk, repo, state, script):
    script += [
        "I look.\n" + call("read", path="calc.py"),
        EDIT,
        "alpha adds now",
        call("read", path="calc.py"),
    ]
    async with open_desk() as desk:
        session = await desk.begin()
        assert await desk.prompt(session) == "end_turn"
        second = asyncio.create_task(desk.prompt(session, "and beta?"))
        await desk.editor.until(lambda: len(desk.editor.calls) == 3)
        desk.process.kill()
        with pytest.raises(ConnectionError):
            await second
    script.append("beta is right")
    async with open_desk() as desk:
        (info,) = (await desk.agent.list_sessions(cwd=str(repo))).sessions
        assert (info.session_id, info.cwd, info.title) == (session, str(repo), "calc.py is off")
        loaded = await desk.agent.load_session(cwd=str(repo), session_id=session, mcp_servers=[])
        assert {option.id: option.current_value for option in loaded.config_options}["profile"] == "compact"
        shown = [update.content.text for update in desk.editor.of(schema.UserMessageChunk)]
        assert shown == ["calc.py is off", "and beta?"]
        assert desk.editor.said == "I look.alpha adds now"
        assert [title for title, _ in desk.editor.calls] == [
            "read: calc.py",
            "edit: calc.py",
            "read: calc.py",
        ]
        assert await desk.prompt(session, "well?") == "end_turn"
        assert desk.editor.said.endswith("beta is right")
    log = Sessions(directory=state / "sessions").load(session)
    assert sum(event.kind is LogEventKind.USER for event in log) == 3


async def test_resume_shows_nothing_again(open_desk, repo, script):
    script += ["one", "two"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.prompt(session)
    async with open_desk() as desk:
        await desk.agent.resume_session(cwd=str(repo), session_id=session)
        assert desk.editor.said == ""
        assert await desk.prompt(session, "on") == "end_turn"
        assert desk.editor.said == "two"


async def test_undo_takes_the_last_prompt_back(open_desk, repo, script):
    script += [EDIT, "done"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.prompt(session)
        assert "a + b" in (repo / "calc.py").read_text()
        assert await desk.prompt(session, "/undo") == "end_turn"
        assert await desk.prompt(session, "/undo") == "end_turn"
        assert desk.editor.said.endswith("undone: calc.pynothing to undo")
        assert desk.editor.of(schema.AvailableCommandsUpdate)[0].available_commands[0].name == "undo"
    assert "a - b" in (repo / "calc.py").read_text()


async def test_two_sessions_in_two_folders(open_desk, repo, tmp_path, script):
    other = tmp_path / "other"
    other.mkdir()
    init = await asyncio.create_subprocess_exec("git", "init", "-q", str(other))
    await init.wait()
    script += [
        call("write", path="here.txt", content="x"),
        "done",
        call("write", path="here.txt", content="y"),
        "ok",
    ]
    async with open_desk() as desk:
        first = await desk.begin()
        second = (await desk.agent.new_session(cwd=str(other), mcp_servers=[])).session_id
        assert first != second
        await desk.prompt(first)
        await desk.prompt(second)
    assert ((repo / "here.txt").read_text(), (other / "here.txt").read_text()) == ("x", "y")


async def test_options_are_chosen_before_the_first_prompt(open_desk, script, prompts):
    script += ["done"]
    async with open_desk() as desk:
        session = await desk.begin()
        options = (
            await desk.agent.set_config_option(config_id="profile", session_id=session, value="claude")
        ).config_options
        assert {option.id: option.current_value for option in options} == {
            "mode": "edit",
            "profile": "claude",
        }
        await desk.prompt(session)
        assert "file_path" in prompts[0]
        for option, value, message in (
            ("profile", "pi", "keeps the profile"),
            ("profile", "none", "no profile"),
            ("mode", "none", "no mode"),
            ("other", "x", "no option"),
        ):
            with pytest.raises(acp.RequestError, match=message):
                await desk.agent.set_config_option(config_id=option, session_id=session, value=value)


async def test_a_read_only_session_changes_nothing(open_desk, repo, script):
    script += [EDIT, "done"]
    async with open_desk() as desk:
        session = await desk.begin()
        await desk.agent.set_config_option(config_id="mode", session_id=session, value="read")
        await desk.prompt(session)
    assert desk.editor.asked == [] and "a - b" in (repo / "calc.py").read_text()


@pytest.mark.parametrize("version", [0, 2, 99])
async def test_another_protocol_version_is_answered_with_ours(gateway, repo, state, version):
    async with desk(gateway, repo, state) as opened:
        reply = await opened.agent.initialize(protocol_version=version)
    assert reply.protocol_version == 1 and reply.agent_info.name == "ostinato"
    assert reply.agent_capabilities.load_session is True


async def test_what_the_editor_asks_wrongly_is_said(open_desk, repo, tmp_path):
    async with open_desk() as desk:
        agent = desk.agent
        session = await desk.begin()
        image = [acp.image_block("AAAA", "image/png")]
        for asked, message in (
            (agent.new_session(cwd="relative", mcp_servers=[]), "not an absolute path"),
            (agent.new_session(cwd="/no/such/folder", mcp_servers=[]), "no directory"),
            (agent.new_session(cwd=str(tmp_path), mcp_servers=[]), "git init"),
            (agent.prompt(session_id="unknown", prompt=[acp.text_block("x")]), "load or resume"),
            (agent.prompt(session_id=session, prompt=[]), "empty"),
            (agent.prompt(session_id=session, prompt=image), "text only"),
            (agent.load_session(cwd=str(repo), session_id="0" * 32, mcp_servers=[]), "no session"),
            (
                agent.load_session(cwd=str(repo), session_id="../../etc/passwd", mcp_servers=[]),
                "no session id",
            ),
            (agent.authenticate(method_id="x"), "OSTINATO_KEY"),
        ):
            with pytest.raises(acp.RequestError, match=message):
                await asked


async def test_without_a_key_the_editor_is_told(open_desk):
    async with open_desk(key="") as desk:
        with pytest.raises(acp.RequestError, match="OSTINATO_KEY") as error:
            await desk.begin()
        assert error.value.code == -32000


async def test_a_wrong_key_is_said_at_the_first_prompt(open_desk):
    async with open_desk(key="wrong") as desk:
        session = await desk.begin()
        with pytest.raises(acp.RequestError, match="401") as error:
            await desk.prompt(session)
        assert error.value.code == -32000


async def test_a_gateway_that_is_away_is_an_error_not_a_crash(repo, state):
    async with desk("http://127.0.0.1:1", repo, state) as opened:
        session = await opened.begin()
        with pytest.raises(acp.RequestError, match="did not answer"):
            await opened.prompt(session)


async def test_malformed_input_is_answered_and_outlived(gateway, repo, state):
    process = await asyncio.create_subprocess_exec(
        *command(gateway),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(state),
    )
    lines = [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"5", -32600),
        (b"null", -32600),
        (b'{"jsonrpc": "2.0"}', -32600),
        (b'{"id": 1, "method": 5}', -32600),
        (b'{"id": [], "method": "initialize"}', -32600),
        (b'{"id": 1, "method": "initialize", "params": []}', -32600),
        (b'{"id": 1, "method": "initialize", "params": {}}', -32602),
        (b'{"id": 1, "method": "no/such"}', -32601),
        (b'{"id": 1, "method": "session/prompt", "params": {"sessionId": 5}}', -32602),
    ]
    for line, code in lines:
        process.stdin.write(line + b"\n")
        answer = json.loads(await process.stdout.readline())
        assert answer["error"]["code"] == code, line
    for line in (
        b"",
        b'{"method": "session/cancel", "params": {"sessionId": "x"}}',
        b'{"id": 7, "result": {}}',
    ):
        process.stdin.write(line + b"\n")
    process.stdin.write(b'{"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\n')
    assert json.loads(await process.stdout.readline())["result"]["protocolVersion"] == 1
    process.stdin.close()
    output, _ = await process.communicate()
    assert process.returncode == 0 and output == b""


async def test_what_is_no_pipe_is_refused() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ostinato", "acp"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert (process.returncode, output) == (2, b"")
    assert errors.startswith(b"ostinato: standard input must be a pipe: an editor starts acp")
