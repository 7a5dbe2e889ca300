"""`refs/notes/ai`, read: the line attributions that git-ai and its kin leave on commits.

A note names files, below each its sessions with the lines they wrote, then `---` and JSON about sessions::

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
    """The ranges of a commit's note; none when it has none."""
    text = ask(root, "notes", "--ref", REF, "show", commit)
    return parse_note(text, commit) if text else []


def parse_note(text: str, commit: str) -> list[Range]:
    """Lines that cannot be read are passed over."""
    body, _, facts = text.partition(f"\n{DIVIDER}")
    models = _models(facts)
    found: list[Range] = []
    path = ""
    for line in body.splitlines():
        if line and not line[0].isspace():
            path = line.strip().strip('"')
        elif path and len(parts := line.split(None, 1)) == 2:
            found += _ranges(path, parts[0], parts[1], commit, models)
    return found


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
        told: Any = json.loads(facts)
    except ValueError:
        return {}
    sessions = {**told.get("prompts", {}), **told.get("sessions", {})} if isinstance(told, dict) else {}
    return {name: _model(told) for name, told in sessions.items()}


def _model(session: Any) -> str:
    agent = session.get("agent_id") if isinstance(session, dict) else None
    return str(agent.get("model", "")) if isinstance(agent, dict) else ""
