import json
import tomllib
from pathlib import Path

import pytest

from ostinato.edits.install.git_hooks import InstallError
from ostinato.loop.team.clients import CLIENTS, Membership

MEMBER = Membership(url="https://models.example", key="ost_1", model="ostinato", context=16_000)
AGAIN = Membership(url="https://models.example", key="ost_2", model="ostinato", context=16_000)
FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "zed": ".config/zed/settings.json",
}
THEIRS = {
    "claude-code": '{"env": {"EDITOR": "vi"}, "hooks": {"Stop": []}}',
    "codex": '# mine\napproval_policy = "never"\n[model_providers.other]\nname = "other"\n[tui]\nx = 1',
    "opencode": '{"model": "openai/x", "provider": {"openai": {}}}',
    "zed": '{"theme": "One", "agent_servers": {"other": {"command": "o"}}}',
}


def read(path: Path) -> dict:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


def holds(new: object, old: object) -> bool:
    """Return whether everything of the old settings stands in the new ones."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and holds(new[name], old[name]) for name in old)
    return new == old


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("there", [True, False])
def test_what_is_there_stays_and_a_new_key_replaces_ours(tmp_path: Path, client: str, there: bool) -> None:
    path, before = tmp_path / FILES[client], {}
    if there:
        path.parent.mkdir(parents=True)
        path.write_text(THEIRS[client])
        before = read(path)
    first = CLIENTS[client][1](tmp_path, MEMBER)
    once = path.read_text()
    assert str(path) in first and holds(read(path), before)
    CLIENTS[client][1](tmp_path, AGAIN)
    assert path.read_text() == once.replace("ost_1", "ost_2")
    if "ost_1" in once:
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("client", "text", "said"),
    [
        ("claude-code", '{"env": {"ANTHROPIC_BASE_URL": "https://mine"}}', "env.ANTHROPIC_BASE_URL"),
        ("claude-code", '{"env": []}', "env"),
        ("claude-code", "// a comment\n{}", "cannot be read"),
        ("opencode", '{"provider": "x"}', "provider"),
        ("zed", "// a comment\n{}", "cannot be read"),
        ("codex", "model = ", "is not TOML"),
        ("codex", '[model_providers.ostinato]\nname = "mine"\n', "model_providers.ostinato"),
    ],
)
def test_what_a_person_chose_otherwise_is_left_and_named(
    tmp_path: Path, client: str, text: str, said: str
) -> None:
    path = tmp_path / FILES[client]
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InstallError, match=said):
        CLIENTS[client][1](tmp_path, MEMBER)
    assert path.read_text() == text and list(path.parent.iterdir()) == [path]


def test_codex_keeps_the_model_that_a_person_chose(tmp_path: Path) -> None:
    path = tmp_path / FILES["codex"]
    path.parent.mkdir(parents=True)
    path.write_text('model = "theirs"\n')
    assert "codex -c model_provider=ostinato" in CLIENTS["codex"][1](tmp_path, MEMBER)
    assert read(path)["model"] == "theirs" and "model_provider" not in read(path)


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_no_key_is_written_into_a_file_that_is_shared_by_a_link(tmp_path: Path, client: str) -> None:
    path, shared = tmp_path / FILES[client], tmp_path / "dotfiles"
    path.parent.mkdir(parents=True)
    shared.write_text("" if client == "codex" else "{}")
    path.symlink_to(shared)
    with pytest.raises(InstallError, match="is a link"):
        CLIENTS[client][1](tmp_path, MEMBER)
    assert "ost_1" not in shared.read_text()
