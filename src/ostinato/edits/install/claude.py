"""The entries of ostinato in a project's Claude Code settings; entries of other tools stay as they are."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from ostinato.edits.install.git_hooks import InstallError

SHARED, LOCAL = Path(".claude/settings.json"), Path(".claude/settings.local.json")
COMMAND = "ostinato hook --input stdin"
TOOLS = "Edit|Write|MultiEdit|NotebookEdit|Bash"
TOOL_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
EVENTS = ("SessionStart", "UserPromptSubmit", *TOOL_EVENTS, "Stop", "SessionEnd")
TIMEOUT_S = 10


def install_claude(root: Path, *, shared: bool) -> list[str]:
    """Add the entries; others stay as they are. Raise InstallError for a file that cannot be merged."""
    path = root / (SHARED if shared else LOCAL)
    settings = read_settings(path)
    hooks = _hooks(path, settings)
    for name in EVENTS:
        matcher = {"matcher": TOOLS} if name in TOOL_EVENTS else {}
        entry = {"type": "command", "command": _command(shared=shared), "timeout": TIMEOUT_S}
        hooks[name] = [*_others(hooks.get(name, [])), matcher | {"hooks": [entry]}]
    write_settings(path, settings | {"hooks": hooks})
    return [f"Claude Code hooks in {path}"]


def uninstall_claude(root: Path) -> list[str]:
    """Remove the entries from both files. Raise InstallError."""
    messages = []
    for path in (root / SHARED, root / LOCAL):
        settings = read_settings(path)
        hooks = _hooks(path, settings)
        left = {name: kept for name, groups in hooks.items() if (kept := _others(groups))}
        if left != hooks:
            changed = settings | {"hooks": left}
            write_settings(path, {name: value for name, value in changed.items() if name != "hooks" or left})
            messages.append(f"Claude Code hooks removed from {path}")
    return messages


def has_claude(root: Path) -> list[str]:
    """Return the files that hold our entries."""
    return [str(name) for name in (SHARED, LOCAL) if _is_ours(json.dumps(read_settings(root / name)))]


def _command(*, shared: bool) -> str:
    """Return the command. In a shared file it must do no harm where ostinato is not installed."""
    if shared:
        return f"command -v ostinato >/dev/null 2>&1 && {COMMAND} || true"
    return f"{shlex.quote(sys.executable)} -P -m {COMMAND} || true"


def read_settings(path: Path) -> dict[str, Any]:
    """Return a JSON object; empty without a file. Raise InstallError for a file that holds none."""
    if not path.exists():
        return {}
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InstallError(
            f"{path} cannot be read ({error}): put it right first, it was not touched"
        ) from error
    if not isinstance(settings, dict):
        raise InstallError(f"{path} must hold a JSON object: put it right first, it was not touched")
    return settings


def _hooks(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    hooks = settings.get("hooks", {})
    is_right = isinstance(hooks, dict) and all(isinstance(groups, list) for groups in hooks.values())
    if not is_right:
        raise InstallError(
            f"`hooks` in {path} must map events to lists: put it right first, it was not touched"
        )
    return dict(hooks)


def _others(groups: list[Any]) -> list[Any]:
    """Return the groups without our commands."""
    others = []
    for group in groups:
        if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
            others.append(group)
            continue
        entries = [entry for entry in group["hooks"] if not _is_ours(json.dumps(entry))]
        if entries or not group["hooks"]:
            others.append(group | {"hooks": entries})
    return others


def _is_ours(text: str) -> bool:
    return COMMAND in text


def write_settings(path: Path, settings: dict[str, Any], *, secret: bool = False) -> None:
    """Write a JSON object, as `write_text` does."""
    write_text(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n", secret=secret)


def write_text(path: Path, text: str, *, secret: bool = False) -> None:
    """Write a whole file, a `secret` one for its owner alone. Raise InstallError where that fails."""
    if secret and path.is_symlink():
        raise InstallError(f"{path} is a link to {path.resolve()}, and a key belongs into no shared file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.touch(mode=0o600)
        part.write_text(text)
        if not secret:
            part.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        part.replace(path)
    except OSError as error:
        raise InstallError(f"cannot write {path}: {error.strerror}") from error
