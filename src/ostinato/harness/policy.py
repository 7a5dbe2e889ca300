"""What the agent may do in a person's own repository: these rules, the person's file, the command line.

A repository cannot add rules: its files are what the agent works on, not who it works for.
"""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from ostinato.config import ConfigError
from ostinato.harness.permissions import Action, Rule

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
"""Commands that only look, whatever follows them."""


def _rules(action: Action, *named: tuple[str, str]) -> list[Rule]:
    return [Rule(tool=tool, pattern=pattern, action=action) for tool, pattern in named]


DEFAULT = [
    *_rules(Action.ALLOW, *((tool, "*") for tool in READING)),
    *_rules(Action.ALLOW, ("edit", "*")),
    *_rules(Action.ALLOW, *(("bash", pattern) for pattern in LOOKING)),
    *_rules(Action.DENY, ("edit", ".git"), ("edit", ".git/*"), ("edit", "*/.git/*")),
]
"""Files of the repository are read and edited freely, since every edit can be undone; commands are asked."""


def file() -> Path:
    """Where a person keeps rules for all of their repositories."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "ostinato" / "permissions.toml"


def load(path: Path) -> list[Rule]:
    """The rules of a file; none when it does not exist. Raises ConfigError."""
    try:
        tree = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return [_rule(table, f"{path}: rule {number}") for number, table in enumerate(_tables(path, tree), 1)]


def given(action: Action, texts: Sequence[str]) -> list[Rule]:
    """Rules of the command line: `bash: make *`, or `read` for all of a tool. Raises ConfigError."""
    rules = []
    for text in texts:
        tool, colon, pattern = text.partition(":")
        if not tool.strip() or (colon and not pattern.strip()):
            raise ConfigError(f"--{action} {text!r}: write it as TOOL or TOOL: PATTERN, like 'bash: make *'")
        rules.append(Rule(tool=tool.strip(), pattern=pattern.strip() or "*", action=action))
    return rules


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
    return Rule(tool=table["tool"], pattern=table["pattern"], action=Action(table["action"]))
