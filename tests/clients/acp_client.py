"""The smallest editor on the `agent-client-protocol` SDK, with `ostinato acp` behind it: GATEWAY KEY TASK."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import acp
from acp import schema

gateway, key, task = sys.argv[1:]
AGENT = [sys.executable, "-m", "ostinato.cli", "acp", "--url", gateway]


class Editor:
    """The editor side: print what the agent says, and permit every request."""

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if isinstance(update, schema.AgentMessageChunk):
            print(update.content.text)

    async def request_permission(self, options: Any, **_: Any) -> Any:
        once = next(option for option in options if option.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=once.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)


async def main() -> None:
    environment = {**os.environ, "OSTINATO_KEY": key}
    async with acp.spawn_agent_process(Editor(), *AGENT, env=environment) as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd=str(Path.cwd()), mcp_servers=[])
        reply = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(task)])
        assert reply.stop_reason == "end_turn", reply


asyncio.run(main())
