"""The actions of `ostinato hooks`: install, uninstall, status and blame."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from ostinato.edits.attribution.blame import authors
from ostinato.edits.capture import spool
from ostinato.edits.capture.repository_paths import RepositoryPaths, is_enabled, size_of, state_of
from ostinato.edits.follow.edit import opened
from ostinato.edits.git import GitCommandError
from ostinato.edits.install.claude import has_claude, install_claude, uninstall_claude
from ostinato.edits.install.git_hooks import InstallError, find, install, installed, uninstall
from ostinato.edits.report.journal import EventJournal
from ostinato.web.joined import JoinedError, joined, joined_path

DONE, WRONG = 0, 2


def hooks(options: argparse.Namespace) -> int:
    """Run one of `install`, `uninstall`, `status`, `blame`; return the exit status."""
    try:
        repo = find(options.directory)
        lines = COMMANDS[options.action](repo, options)
    except (InstallError, JoinedError, GitCommandError) as error:
        print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
        return WRONG
    print("\n".join(lines))  # noqa: T201
    return DONE


def register(commands: Any) -> None:
    """Add `hook` and `hooks` to the subparsers of `ostinato`."""
    hook = commands.add_parser("hook")
    hook.add_argument("--input", choices=["stdin"], help="one JSON object: a hook event")
    hook.add_argument("--git", metavar="NAME", help="a git hook ran")
    hook.set_defaults(run=_hook)
    parser = commands.add_parser("hooks")
    parser.add_argument("action", choices=sorted(COMMANDS), help="what to do")
    parser.add_argument("path", nargs="?", help="for blame: the file")
    parser.add_argument("--directory", type=Path, default=Path(), help="the repository (default: here)")
    parser.add_argument(
        "--claude-code", action="store_true", help="also in the project's Claude Code settings"
    )
    parser.add_argument(
        "--shared",
        action="store_true",
        help="in settings.json, for everybody, instead of settings.local.json",
    )
    parser.add_argument("--no-git-hooks", action="store_true", help="leave git's hooks alone")
    parser.add_argument("--json", action="store_true", help="print status or blame as JSON")
    parser.set_defaults(run=hooks)


def _hook(options: argparse.Namespace) -> int:
    from ostinato.edits.capture.hook_command import main as hook

    return hook(["--git", options.git] if options.git else ["--input", "stdin"])


def _install(repo: RepositoryPaths, options: argparse.Namespace) -> list[str]:
    messages = install(repo, git_hooks=not options.no_git_hooks)
    if options.claude_code:
        messages += install_claude(Path(repo.root), shared=options.shared)
    where = joined().url or f"nobody: set OSTINATO_URL and OSTINATO_KEY, or url and key in {joined_path()}"
    return [*messages, f"reports to {where}"]


def _uninstall(repo: RepositoryPaths, _: argparse.Namespace) -> list[str]:
    return uninstall_claude(Path(repo.root)) + uninstall(repo)


def _status(repo: RepositoryPaths, options: argparse.Namespace) -> list[str]:
    """Return the lines of the status; also start a reporter for windows that no event has picked up."""
    if is_enabled(state_of(repo)):
        spool.wake(repo)
    facts = status(repo)
    if options.json:
        return [json.dumps(facts)]
    return [f"{name:<12} {_shown(value)}" for name, value in facts.items()]


def status(repo: RepositoryPaths) -> dict[str, Any]:
    """Return what is installed, followed, recorded and not sent yet."""
    state = Path(state_of(repo))
    journal = EventJournal(state)
    entries = journal.entries()
    names = Counter(entry.get("name", entry.get("kind")) for entry in entries)
    skipped = Counter(e["attributes"]["reason"] for e in entries if e.get("name") == "edit.skipped")
    unsent = sum(line.entry is not None for line in journal.read(journal.sent()))
    errors = state / spool.ERRORS
    return {
        "recording": is_enabled(str(state)),
        "git hooks": [name for name, there in installed(repo).items() if there],
        "claude code": has_claude(Path(repo.root)),
        "followed": len(opened(state)),
        "events": dict(names),
        "skipped": dict(skipped),
        "unsent": unsent,
        "gateway": joined().url,
        "last error": errors.read_text().splitlines()[-1] if size_of(str(errors)) else "",
    }


def _blame(repo: RepositoryPaths, options: argparse.Namespace) -> list[str]:
    if not options.path:
        raise InstallError("say which file: `ostinato hooks blame PATH`")
    full = (options.directory / options.path).resolve()
    if not full.is_file():
        raise InstallError(f"no such file {options.path}")
    authored = authors(repo, str(full.relative_to(repo.root)))
    if options.json:
        return [json.dumps([_authored(a) for a in authored])]
    return [f"{a.line:>5} {a.commit[:10]} {a.contributor.value:<7} {a.model}".rstrip() for a in authored]


def _authored(line: Any) -> dict[str, Any]:
    return {
        "line": line.line,
        "commit": line.commit,
        "contributor": line.contributor.value,
        "model": line.model,
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in sorted(value.items())) or "-"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return str(value) if value not in ("", None) else "-"


COMMANDS = {"install": _install, "uninstall": _uninstall, "status": _status, "blame": _blame}
