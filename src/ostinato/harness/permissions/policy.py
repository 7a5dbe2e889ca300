"""The policy in a person's own repository: default rules, then the person's file, then the command line.

A repository cannot add rules, since the agent works on its files and not for them.
"""

import os
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

from ostinato.config import ConfigError
from ostinato.harness.permissions import patterns
from ostinato.harness.permissions.rules import Action, Rule
from ostinato.harness.permissions.shell import UNKNOWN
from ostinato.harness.tools.definitions import CATALOGUE

READING = ("read", "ls", "grep", "glob", "semantic_search", "todo_write", "ask_user")
LOOKING = (
    "pwd",
    "true",
    "ls *",
    "git status *",
    "git diff",
    "git diff --staged",
    "git diff --stat",
    "git log",
)
"""The commands that only look, whatever follows them."""


def _rules(action: Action, *named: tuple[str, str]) -> list[Rule]:
    return [Rule(tool=tool, pattern=pattern, action=action) for tool, pattern in named]


DEFAULT = [
    *_rules(Action.ALLOW, *((tool, "*") for tool in READING)),
    *_rules(Action.ALLOW, ("edit", "*")),
    *_rules(Action.ALLOW, *(("bash", pattern) for pattern in LOOKING)),
    *_rules(Action.DENY, *(("edit", pattern) for pattern in (".git", ".git/*", "*/.git", "*/.git/*"))),
]
"""The default rules: files are read and edited freely, since every edit can be undone; commands are asked."""


def keeping_programs(root: Path) -> list[Rule]:
    """Return rules that keep edits out of folders of the repository in which the shell looks for programs.

    Without them an edit could become the next `ls`, since a virtual environment of the repository is often on
    PATH.
    """
    top = root.resolve()
    searched = [Path(folder) for folder in search_path().split(os.pathsep)]
    programs = [Path(name) for name in map(shutil.which, ("git", "ls")) if name]
    folders = {
        folder.resolve() for folder in (*searched, *(program.resolve().parent for program in programs))
    }
    below = sorted(folder.relative_to(top).as_posix() for folder in folders if folder.is_relative_to(top))
    return _rules(Action.DENY, *(("edit", f"{patterns.exactly(folder)}/*") for folder in below))


def search_path() -> str:
    """Return PATH without relative folders, since a repository must not choose programs."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if Path(folder).is_absolute())


def file() -> Path:
    """Return the file in which a person keeps rules for all repositories."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "ostinato" / "permissions.toml"


def load(path: Path) -> list[Rule]:
    """Return the rules of a file, none when it does not exist; raises ConfigError."""
    try:
        tree = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return [_rule(table, f"{path}: rule {number}") for number, table in enumerate(_tables(path, tree), 1)]


def given(action: Action, texts: Sequence[str]) -> list[Rule]:
    """Return rules of the command line: `bash: make *`, or `read` for all of a tool; raises ConfigError."""
    rules = []
    for text in texts:
        tool, colon, pattern = text.partition(":")
        if not tool.strip() or (colon and not pattern.strip()):
            raise ConfigError(f"--{action} {text!r}: write it as TOOL or TOOL: PATTERN, like 'bash: make *'")
        _check_tool(tool.strip(), f"--{action} {text!r}")
        rules.append(Rule(tool=tool.strip(), pattern=pattern.strip() or "*", action=action))
    return rules


def _check_tool(tool: str, where: str) -> None:
    """Refuse a rule about an unknown tool, which would have no effect without a word."""
    known = [*CATALOGUE, "git", "mcp__"]
    if not any(patterns.meets(tool, name + UNKNOWN if name == "mcp__" else name) for name in known):
        tools = ", ".join(CATALOGUE)
        raise ConfigError(
            f"{where}: there is no tool {tool!r}; write it as TOOL: PATTERN, like 'bash: make *', "
            f"where TOOL is one of {tools}, git, mcp__SERVER__NAME, or a pattern of them"
        )


def _tables(path: Path, tree: dict[str, object]) -> list[object]:
    tables = tree.get("rule", [])
    if set(tree) - {"rule"} or not isinstance(tables, list):
        raise ConfigError(f"{path}: it holds [[rule]] tables with tool, pattern and action, nothing else")
    return tables


def _rule(table: object, where: str) -> Rule:
    if not isinstance(table, dict) or set(table) != {"tool", "pattern", "action"}:
        raise ConfigError(f"{where}: needs tool, pattern and action, and nothing else")
    if not all(isinstance(value, str) for value in table.values()) or table["action"] not in set(Action):
        raise ConfigError(f"{where}: three texts, the action one of {', '.join(Action)}")
    _check_tool(table["tool"], where)
    return Rule(tool=table["tool"], pattern=table["pattern"], action=Action(table["action"]))
