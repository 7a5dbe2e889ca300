import json

import pytest

from ostinato.harness.agent import Agent, HarnessConfig, Outcome
from ostinato.harness.client import ContextExceeded, GatewayRefused, GatewayUnavailable, Reply
from ostinato.harness.profiles import CORE
from ostinato.harness.prompt import SYSTEM
from ostinato.harness.scripted import ScriptedClient
from ostinato.harness.tools import TOOLS
from ostinato.sandbox.base import Sandbox
from ostinato.types import Ending, SignalKind, Source


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
    assert str(error) in outcome.reason
    assert client.signals[0].value == ending.value


async def test_a_wrong_key_is_for_the_caller(sandbox: Sandbox, user) -> None:
    with pytest.raises(GatewayRefused, match="401"):
        await Agent(Refusing(GatewayRefused(401, "no", None)), sandbox, user).run("fix it", session_id="s1")


async def test_a_dead_sandbox_voids_the_session(sandbox: Sandbox, user) -> None:
    await sandbox.close()
    outcome, client = await run(sandbox, user, calls(READ))
    assert outcome.ending is Ending.INFRASTRUCTURE
    assert "closed" in outcome.reason
    assert client.signals[0].value == "infrastructure"


async def test_an_observer_sees_everything(sandbox: Sandbox, user) -> None:
    seen: list[tuple[str, object]] = []

    class Watching:
        def text(self, piece):
            seen.append(("text", piece))

        def call(self, name, arguments):
            seen.append((name, arguments))

        def result(self, observation):
            seen.append(("result", observation.text))

    client = ScriptedClient([calls(EDIT), says("fixed")])
    await Agent(client, sandbox, user, observer=Watching()).run("fix it", session_id="s1")
    assert seen == [EDIT, ("result", "ok"), ("text", "fixed")]
