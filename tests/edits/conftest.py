"""Real git repositories, a reporter with a clock set by hand, and a gateway that stores what it receives."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ostinato
from ostinato.edits.capture.hook_command import record_edit
from ostinato.edits.capture.repository_paths import RepositoryPaths, state_of
from ostinato.edits.follow.windows import ManualClock
from ostinato.edits.install.git_hooks import find, install
from ostinato.edits.report.journal import EventJournal
from ostinato.edits.report.reporter import EditReporter
from ostinato.web.joined import Joined

BASE = """import os


def alpha(values):
    total = 0
    for value in values:
        total -= value
    return total


def beta(x):
    return x[1]


def gamma(name):
    return "hello " + name
"""
PROPOSED = """import os


def alpha(values):
    total = 0
    for value in values:
        if value is None:
            continue
        total += abs(value) * scale_of(value)
    return total


def beta(x):
    return x[1]


def gamma(name):
    return "hello " + name
"""


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "OSTINATO_", "XDG_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[user]\nname = t\nemail = t@t\n[init]\ndefaultBranch = main\n[commit]\ngpgsign = false\n"
        '[protocol "file"]\nallow = always\n[gc]\nauto = 0\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(Path(ostinato.__file__).parent.parent))


@dataclass(slots=True)
class FakeGateway:
    """A gateway that responds with `status` and stores what it receives."""

    status: int = 200
    statuses: dict[str, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    feedback: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def post(self, path: str, body: bytes, kind: str) -> tuple[int, bytes]:
        status = self.statuses.get(path, self.status)
        self.bodies.append(body)
        if status == 200:
            taken = [json.loads(line) for line in body.splitlines()]
            (self.events if path == "/v1/events" else self.feedback).extend(taken)
        return status, b"{}"


@dataclass(slots=True)
class Desk:
    """A developer at work in one repository, and the reporter that follows the edits."""

    BASE: ClassVar[str] = BASE
    PROPOSED: ClassVar[str] = PROPOSED
    root: Path
    repo: RepositoryPaths
    clock: ManualClock
    gateway: FakeGateway
    reporter: EditReporter

    def git(self, *arguments: str, check: bool = True) -> str:
        return run_git(self.root, *arguments, check=check)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def agent(
        self, path: str, after: str | None, *, session: str = "s1", turn: int | None = 2, **more: Any
    ) -> None:
        """Let the agent change a file, and the reporter take the edit in."""
        file = self.root / path
        before = file.read_text() if file.exists() else None
        if after is None:
            file.unlink()
        else:
            self.write(path, after)
        event = {
            "session_id": session,
            "turn": turn,
            "cwd": str(self.root),
            "path": path,
            "agent": "ostinato",
        }
        texts = {"before": before, "after": after, "agent": "ostinato"}
        assert record_edit(event | texts | more, at=self.clock.now(), start_reporter=False)
        self.reporter.tick()

    def after(self, seconds: float) -> None:
        """Let time pass and the reporter run."""
        self.clock.at += seconds
        self.reporter.tick()
        self.reporter.tick()

    def commit(self, message: str = "work", *paths: str) -> str:
        self.git("add", *(paths or ["-A"]))
        self.git("commit", "-q", "-m", message)
        self.look()
        return self.git("rev-parse", "HEAD")

    def look(self) -> None:
        """Let a git hook fire."""
        from ostinato.edits.capture import spool

        record = {"kind": "git", "hook": "post-commit", "root": self.repo.root, "at": self.clock.now()}
        spool.put(state_of(self.repo), record)
        self.reporter.tick()

    @property
    def journal(self) -> list[dict[str, Any]]:
        return EventJournal(Path(state_of(self.repo))).entries()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.journal if entry.get("name") == name]

    def survival(self, window: str) -> dict[str, Any]:
        """Return the attributes of the survival event of a window."""
        found = [e["attributes"] for e in self.named("edit.survival") if e["attributes"]["window"] == window]
        assert found, f"no window {window}"
        return found[-1]

    @property
    def signals(self) -> list[str]:
        return [entry["kind"] for entry in self.journal if "kind" in entry]


def run_git(root: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"git {arguments}: {done.stderr}{done.stdout}"
    return done.stdout.strip()


def make_repo(root: Path) -> Path:
    root.mkdir(parents=True)
    run_git(root, "init", "-q")
    (root / "calc.py").write_text(BASE)
    (root / "other.py").write_text("def other():\n    return 1\n")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-q", "-m", "start")
    return root


def sit_down(root: Path, *, content: bool = False) -> Desk:
    repo = find(root)
    install(repo, git_hooks=False)
    clock, gateway = ManualClock(), FakeGateway()
    reporter = EditReporter(repo, clock, Joined(url="", key="", content=content), gateway)
    return Desk(root=root, repo=repo, clock=clock, gateway=gateway, reporter=reporter)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo")


@pytest.fixture
def desk(repo: Path) -> Desk:
    return sit_down(repo)


@pytest.fixture
def ruff() -> str:
    """Run a real formatter."""
    return str(Path(sys.executable).parent / "ruff")
