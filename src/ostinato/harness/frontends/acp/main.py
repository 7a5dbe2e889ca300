"""The command `ostinato acp`: an editor starts it and exchanges JSON-RPC with it over standard input and
output.
"""

import argparse
import asyncio
import importlib.util
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ostinato.config import ConfigError
from ostinato.harness.frontends.command_line import SUMMARIZING, URL_HELP, gateway_of
from ostinato.web.joined import JoinedError

if TYPE_CHECKING:
    from ostinato.harness.workspace.workbench import Options

DONE, WRONG = 0, 2


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `ostinato acp` to the command line."""
    parser = commands.add_parser("acp")
    parser.add_argument("--url", help=URL_HELP)
    parser.add_argument(
        "--key-file", type=Path, default=None, help="a file with the API key (or set OSTINATO_KEY)"
    )
    parser.add_argument(
        "--profile",
        help=f"the tools that new sessions begin with (default: those that the model was trained under, else "
        f"{SUMMARIZING}, which summarises)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from ostinato.harness.profiles.profile import ProfileError, profile
    from ostinato.harness.workspace.workbench import PEOPLE, Options

    try:
        gateway = gateway_of(arguments)
        config = replace(PEOPLE, profile=profile(arguments.profile or SUMMARIZING).name)
        options = Options(
            directory=Path(),
            url=gateway.url,
            key=gateway.key,
            config=config,
            fits_profile=arguments.profile is None,
        )
    except (ProfileError, ConfigError, JoinedError) as error:
        return _refuse(str(error))
    return serve(options)


def serve(options: "Options") -> int:
    """Serve until the end of input and return the exit status.

    The status is 2, with one line on standard error, when it cannot start.
    """
    if importlib.util.find_spec("acp") is None:
        return _refuse("an editor needs the Agent Client Protocol: pip install -e '.[code]'")
    if sys.stdin.isatty():
        return _refuse("acp is started by an editor, see docs/acp.md; `ostinato code` is for terminals")
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return _refuse(
            "standard input must be a pipe: an editor starts acp and writes to it, see docs/acp.md"
        )
    asyncio.run(_serve(options))
    return DONE


def _refuse(message: str) -> int:
    print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return WRONG


async def _serve(options: "Options") -> None:
    from acp.agent.connection import AgentSideConnection

    from ostinato.harness.frontends.acp.agent import EditorAgent
    from ostinato.harness.frontends.acp.wire import standard_streams

    lines = await standard_streams()
    agent = EditorAgent(options)
    connection = AgentSideConnection(
        cast("Any", agent), lines, listening=False, use_unstable_protocol=True, observers=[agent.observe]
    )
    try:
        await connection.listen()
    finally:
        await agent.close()
        await connection.close()
