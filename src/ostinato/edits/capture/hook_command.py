"""`ostinato hook`: the command that agents and git call at every event.

It is quick, prints nothing and always exits with 0.

`--input stdin` reads one JSON object: a hook event of Claude Code, or the plain form that any tool can
write::

    {"hook_event_name": "edit.proposed", "session_id": "…", "cwd": "/repo", "path": "a.py",
     "before": text or null, "after": text or null,
     "turn": 3, "tool_use_id": "…", "tool_name": "edit", "agent": "…", "model": "…"}

`before` and `after` are both whole texts of the file, or both a piece of it, where the piece `after` occurs
once in the file; null stands for a file that does not exist. An edit whose texts are neither is counted and
not followed. `turn` and the fields after it may be missing. Git's own hooks call `--git NAME`. This command
writes to the inbox and keeps the tree at a session's start (`starts.py`); the reporter does the work.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from ostinato.edits.capture import spool, starts
from ostinato.edits.capture.repository_paths import (
    STATE,
    RepositoryPaths,
    find_repository,
    head_of,
    is_enabled,
    reflog_of,
    size_of,
    stashes_of,
    state_of,
)

FILE_TOOLS = {"Edit", "Write", "MultiEdit", "NotebookEdit"}
SHELL_TOOLS = {"Bash"}
SESSION_EVENTS = {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"}
STARTING = {"SessionStart", "UserPromptSubmit"}
"""The session's events before its first call: each keeps the tree anew."""
LATE = {"resume", "compact"}
"""The sources of a SessionStart whose session began earlier."""
LOGGED = "ostinato-code"
"""The agent whose own log has the tree at the start."""
ORIGINAL = "originalFile"
SESSION_FACTS = ("model", "source", "prompt_id", "reason", "turn", "agent")
"""The fields of a session's event that are recorded with its name. The text of a prompt never is."""

MISMATCH = "mismatch"
NEITHER = (
    "`after` is neither the whole text of the file nor a piece that occurs in it once; "
    "the edit is counted and not followed: give whole texts"
)

Event = Mapping[str, object]


def main(arguments: Sequence[str]) -> int:
    """Record one event. Always return 0, since a failure here must not stop the agent or git."""
    try:
        if list(arguments[:1]) == ["--git"]:
            _on_git(arguments[1], os.getcwd())
        else:
            _on_event(json.loads(sys.stdin.buffer.read()))
    except Exception:
        import traceback

        _complain(traceback.format_exc())
    return 0


def _on_git(hook: str, directory: str) -> None:
    repo = find_repository(directory)
    if repo and is_enabled(state_of(repo)):
        spool.put(state_of(repo), {"kind": "git", "hook": hook, "root": repo.root, "at": time.time()})
        spool.wake(repo)


def _on_event(event: Event) -> None:
    name, tool = event.get("hook_event_name"), event.get("tool_name")
    if name == "edit.proposed":
        _keep_start_before_edit(event)
        record_edit(event)
    elif name in SESSION_EVENTS:
        _on_session(event)
    elif tool in FILE_TOOLS:
        _on_file_tool(event)
    elif tool in SHELL_TOOLS:
        _on_shell(event)


def record_edit(event: Event, *, at: float | None = None, start_reporter: bool = True) -> bool:
    """Record an edit that is described in the plain form of the module's docstring.

    Code that runs an agent itself may call this. `at` is when the edit happened, in seconds since the epoch;
    now by default. Return False, and record nothing, in a repository where `ostinato hooks install` was not
    run.
    """
    path = os.path.join(_text(event, "cwd"), _text(event, "path"))
    repo = _enabled(os.path.dirname(path))
    if repo is None:
        return False
    texts = whole_texts(path, event.get("before"), event.get("after"))
    spool.put(state_of(repo), _edit_record(event, repo, path, texts, at))
    if start_reporter:
        spool.wake(repo)
    return True


def whole_texts(path: str, before: object, after: object) -> Mapping[str, object]:
    """Return the whole texts before and after an edit just made, from whole texts or the piece that changed.

    The content of the file decides which of the two was given. `skip` is the reason why the edit cannot be
    followed; it is empty when the edit can be followed.
    """
    for name, text in (("before", before), ("after", after)):
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{name} must be text or null, got {type(text).__name__}")
    now, why = spool.content(path)
    if why in {"large", "binary"}:
        return {"before": None, "after": None, "skip": why}
    if after == now:
        return {"before": before, "after": after, "skip": ""}
    if isinstance(before, str) and isinstance(after, str) and now is not None:
        if after and now.count(after) == 1:
            return {"before": now.replace(after, before), "after": now, "skip": ""}
        if _is_formatted(path, after, now):
            return {"before": before, "after": after, "skip": ""}
    return {"before": None, "after": None, "skip": MISMATCH}


def _is_formatted(path: str, reported: str, now: str) -> bool:
    """Return whether the file differs from the reported text only by formatting."""
    from ostinato.edits.text.align import split
    from ostinato.edits.text.tokens import same_meaning

    return same_meaning(path, split(reported), split(now))


def _on_session(event: Event) -> None:
    repo = _enabled(_text(event, "cwd"))
    if repo:
        _keep_start(repo, event)
        facts = {name: event[name] for name in SESSION_FACTS if name in event}
        name = event["hook_event_name"]
        record = {"kind": "session", "name": name, "session_id": event["session_id"], "at": time.time()}
        spool.put(state_of(repo), record | {"told": facts, "root": repo.root})
        spool.wake(repo)


def _keep_start(repo: RepositoryPaths, event: Event) -> None:
    """Keep the tree at a session's start; a session that began before its first event has none."""
    name, session_id = event["hook_event_name"], _text(event, "session_id")
    if event.get("source") in LATE and not starts.is_known(repo, session_id):
        starts.leave_out(repo, session_id, "it began earlier")
    elif name in STARTING:
        starts.keep(repo, session_id, last=False)
    elif name == "PreToolUse":
        starts.keep(repo, session_id, last=True)


def _keep_start_before_edit(event: Event) -> None:
    """Keep the tree of a client that reports an edit after it was made: with the text before put back."""
    path = os.path.join(_text(event, "cwd"), _text(event, "path"))
    repo = _enabled(os.path.dirname(path))
    session_id = _text(event, "session_id")
    if repo is None or event.get("agent") == LOGGED or not starts.is_open(repo, session_id):
        return
    texts = whole_texts(path, event.get("before"), event.get("after"))
    if texts["skip"]:
        starts.leave_out(repo, session_id, f"its first edit is {texts['skip']}")
    else:
        before = texts["before"] if isinstance(texts["before"], str) else None
        starts.keep(repo, session_id, last=True, before=(_relative(repo, path), before))


def _on_file_tool(event: Event) -> None:
    tool_input = event["tool_input"]
    if not isinstance(tool_input, Mapping):
        return
    path = os.path.join(
        _text(event, "cwd"), str(tool_input.get("file_path") or tool_input.get("notebook_path"))
    )
    repo = _enabled(os.path.dirname(path))
    if not repo:
        return
    pending = _pending(repo, event)
    if event["hook_event_name"] == "PreToolUse":
        _keep_start(repo, event)
        text, why = spool.content(path)
        facts = _facts(event, repo) | {"path": path, "before": text, "skip": why}
        spool.write(pending, facts, sync=False)
    elif event["hook_event_name"] == "PostToolUse":
        spool.put(state_of(repo), _edit_record(event, repo, path, _both(pending, path, event)))
        spool.wake(repo)
    if event["hook_event_name"] != "PreToolUse":
        _forget(pending)


def _both(pending: str, path: str, event: Event) -> Mapping[str, object]:
    """Return the texts before and after. Without a text before, the edit is counted and not followed."""
    after, why = spool.content(path)
    response = event.get("tool_response")
    if os.path.exists(pending):
        with open(pending, "rb") as file:
            earlier = json.load(file)
        before, lost = earlier["before"], "" if earlier["skip"] == "missing" else earlier["skip"]
    elif isinstance(response, Mapping) and ORIGINAL in response:
        before, lost = response[ORIGINAL], ""
    else:
        before, lost = None, "unseen"
    return {"before": before, "after": after, "skip": lost or ("" if why == "missing" else why)}


def _on_shell(event: Event) -> None:
    """Record the trees before and after a command, which may change any file."""
    from ostinato.edits.capture.snapshots import snapshot

    repo = _enabled(_text(event, "cwd"))
    if not repo:
        return
    pending = _pending(repo, event)
    if event["hook_event_name"] == "PreToolUse":
        _keep_start(repo, event)
        spool.write(pending, {"tree": snapshot(repo)}, sync=False)
        return
    if os.path.exists(pending):
        with open(pending, "rb") as file:
            before = json.load(file)["tree"]
        after = snapshot(repo)
        if before != after:
            record = _facts(event, repo) | {"kind": "trees", "before": before, "after": after}
            spool.put(state_of(repo), record)
            spool.wake(repo)
        _forget(pending)


def _edit_record(
    event: Event,
    repo: RepositoryPaths,
    path: str,
    texts: Mapping[str, object],
    at: float | None = None,
) -> Mapping[str, object]:
    """Return the inbox record for an edit of `path`; `texts` has the form that `whole_texts` returns."""
    name = _relative(repo, path)
    if texts["skip"] == MISMATCH:
        spool.complain(state_of(repo), f"edit of {name}: {NEITHER}")
    time_of_edit = {} if at is None else {"at": at}
    return _facts(event, repo) | {"kind": "edit", "path": name, **texts, **time_of_edit}


def _relative(repo: RepositoryPaths, path: str) -> str:
    """Return the path in the repository; a link in its last part is not followed."""
    full = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return os.path.relpath(full, repo.root)


def _facts(event: Event, repo: RepositoryPaths) -> dict[str, object]:
    """Return the facts of an event and the state of its repository at this moment."""
    turn = event.get("turn")
    return {
        "session_id": _text(event, "session_id"),
        "turn": turn if isinstance(turn, int) and not isinstance(turn, bool) else None,
        "tool": str(event.get("tool_name") or "edit"),
        "tool_use_id": str(event.get("tool_use_id") or ""),
        "agent_id": str(event.get("agent_id") or ""),
        "agent": str(event.get("agent") or ("claude-code" if "transcript_path" in event else "")),
        "model": str(event.get("model") or ""),
        "root": repo.root,
        "home": head_of(repo),
        "reflog": size_of(reflog_of(repo)),
        "stashes": stashes_of(repo),
        "at": time.time(),
    }


def _enabled(directory: str) -> RepositoryPaths | None:
    repo = find_repository(directory)
    return repo if repo and is_enabled(state_of(repo)) else None


def _pending(repo: RepositoryPaths, event: Event) -> str:
    """Return the path at which the state before a call is kept until the call ends."""
    call = str(event.get("tool_use_id") or event.get("tool_name"))
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in f"{event['session_id']}.{call}")
    return os.path.join(state_of(repo), spool.PENDING, name[:200] + ".json")


def _forget(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def _text(event: Event, name: str) -> str:
    value = event[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {type(value).__name__}")
    return value


def _complain(what: str) -> None:
    """Write to the repository's own log, or to the user's when there is no repository."""
    try:
        repo = find_repository(os.getcwd())
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        spool.complain(state_of(repo) if repo else os.path.join(home, STATE), what)
    except OSError:
        return  # no log can be written
