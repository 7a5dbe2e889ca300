from pathlib import Path

import pytest

from ostinato.config import ConfigError
from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions, Rule


@pytest.mark.parametrize(
    ("tool", "arguments", "action"),
    [
        ("read", {"path": "calc.py"}, Action.ALLOW),
        ("edit", {"path": "calc.py"}, Action.ALLOW),
        ("write", {"path": ".git/hooks/pre-commit"}, Action.DENY),
        ("write", {"path": "sub/.git"}, Action.DENY),
        ("bash", {"command": "ls &>/dev/null touch X"}, Action.ASK),
        ("edit", {"path": "vendor/x/.git/config"}, Action.DENY),
        ("bash", {"command": "git status -s && ls"}, Action.ALLOW),
        ("bash", {"command": "git diff --output=calc.py"}, Action.ASK),
        ("bash", {"command": "make"}, Action.ASK),
        ("bash", {"command": "ls > .git/config"}, Action.DENY),
        ("mcp__files__read", {"path": "x"}, Action.ASK),
        ("ask_user", {"question": "which?"}, Action.ALLOW),
    ],
)
def test_what_a_person_gets_without_a_word(tool: str, arguments: dict[str, str], action: Action) -> None:
    assert Permissions(policy.DEFAULT).decide(tool, arguments).action is action


def test_a_file_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "permissions.toml"
    assert policy.load(path) == []
    path.write_text('[[rule]]\ntool = "bash"\npattern = "make *"\naction = "allow"\n')
    assert policy.load(path) == [Rule(tool="bash", pattern="make *", action=Action.ALLOW)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule", "permissions.toml"),
        ("[rules]\n", r"\[\[rule\]\] tables"),
        ("[rule]\n", r"\[\[rule\]\] tables"),
        ('[[rule]]\ntool = "bash"\n', "rule 1: needs tool, pattern and action"),
        ('[[rule]]\ntool = "bash"\npattern = 3\naction = "allow"\n', "rule 1: three texts"),
        ('[[rule]]\ntool = "bash"\npattern = "x"\naction = "let"\n', "one of allow, ask, deny"),
        ('[[rule]]\ntool = "Bash"\npattern = "x"\naction = "deny"\n', "there is no tool 'Bash'"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "permissions.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        policy.load(path)


def test_rules_of_the_command_line() -> None:
    assert [str(rule) for rule in policy.given(Action.DENY, ["bash: git push *", "write"])] == [
        "deny bash: git push *",
        "deny write: *",
    ]
    for text in ("", ": x", "bash:"):
        with pytest.raises(ConfigError, match="write it as TOOL or TOOL: PATTERN"):
            policy.given(Action.ALLOW, [text])
    for text in ("make *", "bash make *", "Bash: make *", "shell: make *", "bash(make *)"):
        with pytest.raises(
            ConfigError, match=r"there is no tool .* like 'bash: make \*', where TOOL is one of"
        ):
            policy.given(Action.ALLOW, [text])
    assert policy.given(Action.ASK, ["mcp__files__*: *", "mcp__*", "*: *", "gr?p"])
