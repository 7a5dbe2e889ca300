"""The notes in `refs/notes/ai`: line attributions that git-ai and similar tools attach to commits.

A note names files, below each one its sessions with the lines they wrote, then `---` and JSON about
sessions::

    src/a.py
      d9978a88 1-4,9
    ---
    {"schema_version": "authorship/3.0.0", "prompts": {"d9978a88": {"agent_id": {"tool": "…", "model": "…"}}}}
"""

import json
import re
from typing import Any

from ostinato.edits.attribution.trace import Contributor, Range
from ostinato.edits.git import ask

REF = "refs/notes/ai"
LINES = re.compile(r"(\d+)(?:-(\d+))?")
DIVIDER = "---"


def read_note(root: str, commit: str) -> list[Range]:
    """Return the ranges of a commit's note; none when it has no note."""
    text = ask(root, "notes", "--ref", REF, "show", commit)
    return parse_note(text, commit) if text else []


def parse_note(text: str, commit: str) -> list[Range]:
    """Return the ranges in a note. Lines that cannot be read are skipped."""
    body, _, facts = text.partition(f"\n{DIVIDER}")
    models = _models(facts)
    ranges: list[Range] = []
    path = ""
    for line in body.splitlines():
        if line and not line[0].isspace():
            path = line.strip().strip('"')
        elif path and len(parts := line.split(None, 1)) == 2:
            ranges += _ranges(path, parts[0], parts[1], commit, models)
    return ranges


def _ranges(path: str, session: str, spec: str, commit: str, models: dict[str, str]) -> list[Range]:
    return [
        Range(
            path=path,
            start=int(first),
            end=int(last or first),
            contributor=Contributor.HUMAN if session.startswith("h_") else Contributor.AI,
            revision=commit,
            model=models.get(session.split("::", maxsplit=1)[0], ""),
            conversation=session,
        )
        for first, last in LINES.findall(spec)
    ]


def _models(facts: str) -> dict[str, str]:
    try:
        parsed: Any = json.loads(facts)
    except ValueError:
        return {}
    sessions = {**parsed.get("prompts", {}), **parsed.get("sessions", {})} if isinstance(parsed, dict) else {}
    return {name: _model(session) for name, session in sessions.items()}


def _model(session: Any) -> str:
    agent = session.get("agent_id") if isinstance(session, dict) else None
    return str(agent.get("model", "")) if isinstance(agent, dict) else ""
