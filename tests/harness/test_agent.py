"""The agent's loop with a scripted model in a real sandbox.

Covers harness/agent.py, harness/conversation.py, harness/instructions.py, harness/roles.py and
harness/scripted.py.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.harness.agent import Agent, HarnessConfig
from ostinato.harness.client import ContextExceeded, GatewayRefused, GatewayUnavailable, Reply, TokenCount
from ostinato.harness.conversation import Conversation, Outcome, messages, unanswered
from ostinato.harness.permissions.rules import Action, Permissions, Rule
from ostinato.harness.profiles.profile import CORE, PROFILES
from ostinato.harness.profiles.prompt import SYSTEM
from ostinato.harness.scripted import ScriptedClient
from ostinato.harness.session_log import LogEventKind, SessionLog, load
from ostinato.harness.tools.definitions import TOOLS
from ostinato.harness.users import Grant, ScriptedUser
from ostinato.sandbox.base import Sandbox
from ostinato.types import Ending, SignalKind, Source, TurnKind


def says(text: str | None, *, finish: str = "stop", tokens: int = 20, broken: str | None = None) -> Reply:
    return Reply(message={"role": "assistant", "content": text}, finish=finish, tokens=tokens, broken=broken)


def calls(*named: tuple[str, dict[str, object]], tokens: int = 20) -> Reply:
    listed = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(named)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": listed}
    return Reply(message=message, finish="tool_calls", tokens=tokens)


READ = ("read", {"path": "calc.py", "limit": 1, "offset": 2})
EDIT = ("edit", {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"})


async def run(sandbox: Sandbox, user, *replies: Reply, **limits: int) -> tuple[Outcome, ScriptedClient]:
    client = ScriptedClient(replies)
    agent = Agent(client, sandbox, user, HarnessConfig(**limits))
    outcome = await agent.run("calc.py is off", session_id="s1", source=Source.PRACTICE, task_id="t1")
    return outcome, client


async def test_a_session_from_reading_to_the_last_word(sandbox: Sandbox, user) -> None:
    ask = ("ask_user", {"question": "which?"})
    outcome, client = await run(sandbox, user, calls(READ, ask), calls(EDIT), says("fixed"), max_tokens=9)
    assert outcome.ending is Ending.FINISHED
    assert (outcome.final_message, outcome.turns, outcome.broken) == ("fixed", 3, 0)
    assert outcome.calls == ("read", "ask_user", "edit")
    assert b"a + b" in await sandbox.read("calc.py")
    texts = [message["content"] for message in outcome.transcript]
    assert texts[:3] == [SYSTEM, "calc.py is off", None]
    assert texts[3] == "    return a - b\n[4 more lines, continue with offset 3]"
    assert texts[4:] == ["use +", None, "ok", "fixed"]
    assert [ask.turn for ask in client.asked] == [0, 1, 2]
    assert client.asked[0].tools == tuple(TOOLS)
    assert client.asked[2].messages == outcome.transcript[:-1]
    assert client.asked[0].headers() == {
        "X-Session-Id": "s1",
        "X-Session-Source": "practice",
        "X-Harness-Hash": CORE.hash,
        "X-Task-Id": "t1",
        "X-Turn": "0",
    }
    (signal,) = client.signals
    assert (signal.id, signal.kind, signal.value) == ("s1/ending", SignalKind.ENDING, "finished")


async def test_a_broken_reply_is_answered_once(sandbox: Sandbox, user) -> None:
    broken = says("<tool_call>\n{oops", broken="bad JSON in a tool call")
    outcome, client = await run(sandbox, user, broken, says("done"))
    assert (outcome.ending, outcome.broken) == (Ending.FINISHED, 1)
    assert client.asked[1].messages[-1] == {"role": "user", "content": "error: bad JSON in a tool call"}
    outcome, client = await run(sandbox, user, broken, calls(("read", {}), ("open", {})))
    assert (outcome.ending, outcome.broken, outcome.calls) == (Ending.BROKEN, 2, ("read", "open"))
    assert client.signals[0].value == "broken"


async def test_limits_of_turns_and_tokens(sandbox: Sandbox, user) -> None:
    outcome, _ = await run(sandbox, user, *[calls(READ)] * 5, max_turns=3)
    assert (outcome.ending, outcome.turns) == (Ending.TURN_LIMIT, 3)
    outcome, _ = await run(sandbox, user, calls(READ, tokens=100), says("done"), max_context=100)
    assert (outcome.ending, outcome.turns) == (Ending.TOKEN_LIMIT, 1)
    outcome, _ = await run(sandbox, user, says("so", finish="length", broken="no end of turn"))
    assert (outcome.ending, outcome.final_message) == (Ending.TOKEN_LIMIT, "")


class Refusing(ScriptedClient):
    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error

    async def reply(self, ask, on_text=None):
        raise self.error


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ContextExceeded(400, "600 tokens", "context_length_exceeded"), Ending.TOKEN_LIMIT),
        (GatewayUnavailable("gone"), Ending.INFRASTRUCTURE),
    ],
)
async def test_what_the_gateway_cannot_do_ends_the_session(sandbox: Sandbox, user, error, ending) -> None:
    client = Refusing(error)
    outcome = await Agent(client, sandbox, user).run("fix it", session_id="s1")
    assert (outcome.ending, outcome.turns) == (ending, 0)
    assert str(error).removeprefix("the gateway refused with 400: ") in outcome.reason
    assert client.signals[0].value == ending.value


async def test_a_wrong_key_is_for_the_caller(sandbox: Sandbox, user) -> None:
    with pytest.raises(GatewayRefused, match="401"):
        await Agent(Refusing(GatewayRefused(401, "no", None)), sandbox, user).run("fix it", session_id="s1")


async def test_a_dead_sandbox_voids_the_session(sandbox: Sandbox, user) -> None:
    await sandbox.destroy()
    outcome, client = await run(sandbox, user, calls(READ))
    assert outcome.ending is Ending.INFRASTRUCTURE
    assert "destroyed" in outcome.reason
    assert client.signals[0].value == "infrastructure"


class Watching:
    """An observer that keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def text(self, piece):
        self.seen.append(("text", piece))

    def reply(self, reply):
        self.seen.append(("reply", reply.tokens))

    def call(self, call):
        self.seen.append((call.tool, call.meant.arguments))

    def edited(self, call, edit):
        self.seen.append(("edited", (call.id, edit.path, edit.lines)))

    def say(self, text, style=""):
        self.seen.append(("say", text))

    def output(self, call, piece):
        self.seen.append(("output", piece))

    def result(self, call, observation):
        self.seen.append(("result", observation.text))


async def test_an_observer_sees_everything(sandbox: Sandbox, user) -> None:
    client, watching = ScriptedClient([calls(EDIT), says("fixed")]), Watching()
    await Agent(client, sandbox, user, observer=watching).run("fix it", session_id="s1")
    assert watching.seen == [("reply", 20), EDIT, ("result", "ok"), ("text", "fixed"), ("reply", 20)]


BASH = ("bash", {"command": "touch made && ls made"})
RULES = [
    Rule(tool="read", pattern="*", action=Action.ALLOW),
    Rule(tool="bash", pattern="rm *", action=Action.DENY),
]


async def test_what_needs_permission_is_asked_and_a_denial_is_read(sandbox: Sandbox) -> None:
    user = ScriptedUser([], [Grant.NO, Grant.ONCE, Grant.ALWAYS])
    client = ScriptedClient(
        [calls(BASH, BASH, BASH, BASH, READ, ("bash", {"command": "rm made"})), says("ok")]
    )
    agent = Agent(client, sandbox, user, permissions=Permissions(RULES))
    outcome = await agent.run("make it", session_id="s1")
    texts = [message["content"] for message in outcome.transcript[3:-1]]
    assert texts[:4] == ["error: not permitted by the user", "made", "made", "made"]
    assert texts[4].startswith("    return")
    assert texts[5] == "error: not permitted by the rule `deny bash: rm *`"
    assert (outcome.ending, outcome.broken) == (Ending.FINISHED, 0)
    assert [request.asks for request in user.requests] == [("touch made", "ls made")] * 3
    assert [str(rule) for rule in user.requests[0].grants] == [
        "allow bash: touch made",
        "allow bash: ls made",
    ]
    assert "made" in await sandbox.files()


@pytest.fixture
def open_log(tmp_path: Path):
    opened = []

    def open_log(name: str = "s1") -> SessionLog:
        opened.append(SessionLog(tmp_path / f"{name}.jsonl"))
        return opened[-1]

    yield open_log
    for log in opened:
        log.close()


async def test_prompt_after_prompt_on_one_session(sandbox: Sandbox, user, open_log) -> None:
    client = ScriptedClient([calls(EDIT), says("fixed"), says("it adds", tokens=40)])
    agent = Agent(client, sandbox, user, HarnessConfig(max_turns=2))
    with open_log() as log:
        conversation = agent.converse("s1", log=log)
        first = await agent.prompt(conversation, "fix it")
        second = await agent.prompt(conversation, "what does it do?")
        await agent.end(conversation, second)
    assert [(outcome.final_message, outcome.turns) for outcome in (first, second)] == [
        ("fixed", 2),
        ("it adds", 1),
    ]
    assert [ask.turn for ask in client.asked] == [0, 1, 2]
    assert [message["role"] for message in client.asked[2].messages][-2:] == ["assistant", "user"]
    assert len(client.signals) == 1
    kinds = [event.kind.value for event in log.events]
    assert kinds[:6] == ["session", "user", "reply", "call", "observation", "reply"]
    assert kinds[6:] == ["outcome", "user", "reply", "outcome", "ending"]
    resumed = agent.converse("s1", log=open_log())
    assert resumed.messages == conversation.messages
    assert resumed.tokens == 40


class Hanging(ScriptedClient):
    """Answers what it has, then never."""

    async def reply(self, ask, on_text=None):
        if not self._replies:
            self.asked.append(ask)
            await asyncio.Event().wait()
        return await super().reply(ask, on_text)


async def cancelled(agent: Agent, conversation: Conversation, until) -> None:
    running = asyncio.ensure_future(agent.prompt(conversation, "fix it"))
    while not until():
        await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_cancelling_ends_the_prompt_and_not_the_session(sandbox: Sandbox, user, open_log) -> None:
    client = Hanging([calls(READ)])
    agent = Agent(client, sandbox, user)
    log = open_log()
    conversation = agent.converse("s1", log=log)
    await cancelled(agent, conversation, lambda: len(client.asked) == 2)
    client._replies.append(says("go on"))
    outcome = await agent.prompt(conversation, "go on")
    assert outcome.final_message == "go on"
    assert [ask.turn for ask in client.asked] == [0, 1, None]
    assert "X-Turn" not in client.asked[2].headers()
    assert LogEventKind.CANCELLED in [event.kind for event in log.events]


async def test_a_cancelled_command_is_answered(sandbox: Sandbox, user, open_log) -> None:
    client = Hanging([calls(("bash", {"command": "touch begun; sleep 60"}), READ)])
    agent = Agent(client, sandbox, user)
    conversation = agent.converse("s1", log=open_log())
    begun = Path(sandbox.root) / "begun"
    await cancelled(agent, conversation, begun.exists)
    assert not unanswered(conversation.messages)
    assert conversation.messages[-1]["content"] == "error: interrupted before the call had answered"


async def test_a_log_that_was_cut_is_taken_up(sandbox: Sandbox, tmp_path: Path) -> None:
    user = ScriptedUser([], [Grant.ALWAYS])
    client = ScriptedClient([calls(BASH), says("made")])
    agent = Agent(client, sandbox, user, permissions=Permissions(RULES))
    with SessionLog(tmp_path / "s1.jsonl") as log:
        await agent.prompt(agent.converse("s1", log=log), "make it")
    lines = log.path.read_bytes().splitlines(keepends=True)
    for end in range(1, len(lines) + 1):
        cut = tmp_path / f"cut{end}.jsonl"
        cut.write_bytes(b"".join(lines[:end]) + b'{"at": 1, "ki')
        with SessionLog(cut) as log:
            again = Agent(ScriptedClient([says("on")]), sandbox, user, permissions=Permissions(RULES))
            resumed = again.converse("s1", log=log)
            assert not unanswered(resumed.messages)
            assert (await again.prompt(resumed, "go on")).final_message == "on"
            granted = b'"kind":"answered"' in b"".join(lines[:end])
            assert len(resumed.permissions.rules) == len(RULES) + 2 * granted


async def test_instructions_are_read_where_they_are(sandbox: Sandbox, user) -> None:
    await sandbox.write("AGENTS.md", b"Use tabs.\n")
    await sandbox.write("CLAUDE.md", b"Not read beside the other.\n")
    await sandbox.write("pkg/CLAUDE.md", b"Here use spaces.\n")
    util = ("read", {"path": "pkg/util.py"})
    outcome, _ = await run(sandbox, user, calls(util, util, READ), says("ok"))
    system, _, _, first, again, root, _ = (message["content"] for message in outcome.transcript)
    assert system == SYSTEM + "\n\nInstructions of this repository (AGENTS.md):\n\nUse tabs."
    assert first == "from calc import alpha\n\n[instructions of pkg/CLAUDE.md]\nHere use spaces."
    assert again == "from calc import alpha"
    assert "instructions" not in root


async def test_instructions_that_lead_elsewhere_are_not_read(sandbox: Sandbox, user) -> None:
    await sandbox.exec("ln -s /etc/hostname AGENTS.md; mkfifo pkg/AGENTS.md")
    outcome, _ = await run(sandbox, user, calls(("read", {"path": "pkg/util.py"})), says("ok"))
    assert outcome.transcript[0]["content"] == SYSTEM
    assert outcome.transcript[3]["content"] == "from calc import alpha"


async def test_a_full_context_is_summarised_and_the_work_goes_on(sandbox: Sandbox, user, tmp_path) -> None:
    thought = "I read it twice.\nSummary:\nno\nSummary: calc.py line 2 is wrong"
    replies = [calls(READ, tokens=80), says(thought), calls(EDIT), says("fixed")]
    client = ScriptedClient(replies)
    config = HarnessConfig(profile="full", max_context=100)
    agent = Agent(client, sandbox, user, config)
    log = SessionLog(tmp_path / "s1.jsonl")
    conversation = agent.converse("s1", log=log)
    outcome = await agent.prompt(conversation, "calc.py is off")
    log.close()
    assert (outcome.ending, outcome.final_message) == (Ending.FINISHED, "fixed")
    first, summary, after, _ = client.asked
    assert "X-Turn-Type" not in first.headers()
    assert summary.headers()["X-Turn-Type"] == "summary"
    assert summary.messages[-1]["content"] == PROFILES["full"].summarize
    assert summary.max_tokens == 25
    assert [message["role"] for message in after.messages] == ["system", "user", "user"]
    assert after.messages[1]["content"] == "calc.py is off"
    carried = after.messages[2]["content"]
    assert carried.endswith("go on from it:\n\ncalc.py line 2 is wrong\n\nSummaries before this one: 0")
    assert messages(load(tmp_path / "s1.jsonl")) == list(outcome.transcript)


async def test_without_a_summary_it_ends(sandbox: Sandbox, user) -> None:
    for reply in (calls(READ), says("", tokens=90), says("so", finish="length"), says("x", broken="bad")):
        outcome, _ = await run(sandbox, user, calls(READ, tokens=80), reply, profile="full", max_context=100)
        assert (outcome.ending, outcome.reason) == (Ending.TOKEN_LIMIT, "the model wrote no summary")
    outcome, _ = await run(sandbox, user, calls(READ, tokens=80), says("done"), max_context=100)
    assert outcome.ending is Ending.FINISHED  # core never summarises


STEPS = [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]
PLAN = ("todo_write", {"todos": STEPS})


async def test_a_chain_of_summaries_carries_state_and_never_the_instructions(
    sandbox: Sandbox, user, tmp_path: Path
) -> None:
    """The trigger counts tokens beyond the first prompt; plan and number come from the harness."""
    counts = iter([(100, 110), (100, 165), (100, 170), (120, 150), (120, 161), (120, 170), (130, 150)])

    def counted(reply: Reply) -> Reply:
        prompt, total = next(counts)
        return replace(reply, tokens=total, usage=TokenCount(prompt=prompt, completion=total - prompt))

    replies = [calls(READ), calls(PLAN), says("early"), calls(READ), calls(READ), says("late"), says("done")]
    client = ScriptedClient(list(map(counted, replies)))
    config = HarnessConfig(profile="full", max_context=400, summarize_after=60)
    agent, log = Agent(client, sandbox, user, config), SessionLog(tmp_path / "s1.jsonl")
    conversation = agent.converse("s1", log=log)
    outcome = await agent.prompt(conversation, "calc.py is off")
    log.close()
    assert (outcome.ending, outcome.turns, conversation.summaries) == (Ending.FINISHED, 7, 2)
    kinds = [ask.kind for ask in client.asked]
    assert [i for i, kind in enumerate(kinds) if kind is TurnKind.SUMMARY] == [2, 5]
    first, last = client.asked[0].messages, client.asked[6].messages
    assert last[:2] == first[:2], "the system prompt and the user's words stay as they were"
    assert len(last) == 3 and "early" not in last[2]["content"]
    plan = "Your plan:\n- [completed] a\n- [pending] b"
    assert last[2]["content"].endswith(f"late\n\nSummaries before this one: 1\n{plan}")
    log = SessionLog(tmp_path / "s1.jsonl")
    again = agent.converse("s1", log=log)
    log.close()
    assert (again.summaries, again.plan, again.first) == (2, conversation.plan, 100)


async def test_a_model_that_summarises_sees_its_own_use_of_tokens(sandbox: Sandbox, user) -> None:
    both = calls(READ, EDIT, tokens=40)
    for profile in ("compact", "core"):
        outcome, _ = await run(sandbox, user, both, says("done"), profile=profile, max_context=100)
        results = [message["content"] for message in outcome.transcript if message["role"] == "tool"]
        assert "tokens used" not in results[0]
        assert results[1].endswith("[40 of 75 tokens used]") == (profile == "compact")
        await sandbox.write("calc.py", b"def alpha(a, b):\n    return a - b\n")


def test_the_profile_that_summarises_pebbles_shows_the_tools_of_core() -> None:
    compact = PROFILES["compact"]
    assert (compact.tools, compact.system) == (CORE.tools, CORE.system)
    assert compact.hash != CORE.hash and compact.summarize is not None
