"""The slash commands: lines that a person types to the harness, not to the model."""

from ostinato.harness.client import GatewayRefused, GatewayUnavailable
from ostinato.harness.git import GitError
from ostinato.harness.session_log import LogError
from ostinato.harness.tools.names import shown
from ostinato.harness.workspace.undo import named
from ostinato.harness.workspace.workbench import Workbench

COMMANDS = {
    "/undo": "take back what the last request changed",
    "/diff": "what this session changed",
    "/resume": "go on with an earlier session of this repository: /resume [ID]",
    "/new": "end this session, begin another",
    "/model": "the model that is served, and its version; /model NAME chooses another",
    "/rules": "what is permitted",
    "/help": "these commands",
    "/quit": "leave",
}
HELP = "\n".join(
    [*(f"{name:<9} {text}" for name, text in COMMANDS.items()), "Ctrl-C stops the agent; once more leaves."]
)


class QuitRequested(Exception):  # noqa: N818
    """The person asked to leave."""


def is_command(line: str) -> bool:
    return line.startswith("/") and not line.startswith("//")


async def command(bench: Workbench, line: str) -> str:
    """Run a command and return the text to show. Raise QuitRequested for `/quit`."""
    name, _, rest = line.strip().partition(" ")
    try:
        match name:
            case "/quit" | "/exit" | "/q":
                raise QuitRequested
            case "/help":
                return HELP
            case "/undo":
                return await _undo(bench)
            case "/diff":
                return await bench.diff() or "no file was changed"
            case "/new":
                await bench.new()
                return "a new session"
            case "/resume":
                await bench.resume(rest.strip())
                return resumed(bench)
            case "/model":
                return await bench.model(rest.strip())
            case "/rules":
                return "\n".join(str(rule) for rule in bench.conversation.permissions.rules)
    except (GitError, LogError, OSError, GatewayRefused, GatewayUnavailable) as error:
        return f"ostinato: {error}"
    return f"no command {name}: /help lists them (begin with // to say it to the agent)"


async def _undo(bench: Workbench) -> str:
    done = await bench.undo()
    if done is None:
        return "nothing to undo"
    lines = [] if done.restored or done.left else ["nothing to undo"]
    lines += [f"restored {shown(path)}" for path in done.restored]
    lines += [f"left as it is, it was changed since: {shown(path)}" for path in done.left]
    lines += [f"left as it is, no checkpoint has it: {path}" for path in named(done.unsaved)]
    return "\n".join(lines)


def resumed(bench: Workbench) -> str:
    """Return a line about the session that goes on."""
    prompts = [message["content"] for message in bench.conversation.messages if message["role"] == "user"]
    last = f"; you last said: {prompts[-1].splitlines()[0]}" if prompts else ""
    return f"session {bench.conversation.session_id}{last}"
