"""The policy, and hostile commands against it: real shells say what a command that was allowed really ran.

Covers harness/permissions/rules.py and harness/permissions/views.py.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ostinato.harness.permissions.rules import ALLOW_ALL, Action, Permissions, Rule


def rules(*lines: str) -> list[Rule]:
    """`allow bash: git *` per line."""
    made = []
    for line in lines:
        action, _, rest = line.partition(" ")
        tool, _, pattern = rest.partition(": ")
        made.append(Rule(tool=tool, pattern=pattern, action=Action(action)))
    return made


def bash(policy: list[Rule] | Permissions, command: str) -> Action:
    permissions = policy if isinstance(policy, Permissions) else Permissions(policy, root="/repo")
    return permissions.decide("bash", {"command": command}).action


def test_the_last_match_wins_but_a_denial_always() -> None:
    policy = rules("allow bash: *", "ask bash: git *", "allow bash: git status *", "deny bash: git push *")
    assert bash(policy, "ls") is Action.ALLOW
    assert bash(policy, "git log") is Action.ASK
    assert bash(policy, "git status") is Action.ALLOW
    assert bash(policy, "git status -s") is Action.ALLOW
    assert bash(policy, "git push") is Action.DENY
    late = Permissions(policy).granting(rules("allow bash: git push *", "allow *: *"))
    assert bash(late, "git push origin") is Action.DENY
    assert bash([], "ls") is Action.ASK


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git status && ls", Action.ALLOW),
        ("git status && curl x", Action.ASK),
        ("git status $(curl x)", Action.ASK),
        ("git status `curl x`", Action.ASK),
        ("git status\ncurl x", Action.ASK),
        ("git status & curl x", Action.ASK),
        ("git status | curl x", Action.ASK),
        ("(git status; curl x)", Action.ASK),
        ("git status > x", Action.ASK),
        ("git status > log.txt", Action.ALLOW),
        ("git status < secret", Action.ASK),
        ("git status 2>&1 >/dev/null", Action.ALLOW),
        ("PATH=. git status", Action.ASK),
        ("PATH=.; git status", Action.ASK),
        ("export PATH=.; git status", Action.ASK),
        ("'git status'", Action.ASK),
        ("git 'status;curl x'", Action.ASK),
        ("cd pkg && git status", Action.ALLOW),
        ("cd /repo/pkg && git status", Action.ALLOW),
        ("cd .. && git status", Action.ASK),
        ("cd /elsewhere && git status", Action.ASK),
        ("cd $X && git status", Action.ASK),
        ("cd - && git status", Action.ASK),
        ("cd && git status", Action.ASK),
        ("cd pkg > x && git status", Action.ASK),
        ("for x in y; do git status; done", Action.ASK),
        ("", Action.ASK),
        ("rm x", Action.DENY),
        ("ls; rm x", Action.DENY),
        ("/bin/rm x", Action.DENY),
        ("\\rm x", Action.DENY),
        ("A=1 rm x", Action.DENY),
        ("sudo -n rm x", Action.DENY),
        ("find . -exec rm {} +", Action.DENY),
        ("bash -c 'ls && rm x'", Action.DENY),
        ("eval 'rm x'", Action.DENY),
        ("for x in y; do rm $x; done", Action.DENY),
        ("echo > .git/hooks/x", Action.DENY),
        ("echo format", Action.ASK),
    ],
)
def test_every_part_must_match(command: str, action: Action) -> None:
    policy = rules(
        "allow bash: git status *",
        "allow bash: ls *",
        "allow bash: > log.txt",
        "deny bash: rm *",
        "deny edit: .git/*",
    )
    assert bash(policy, command) is action


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git -c a=b push origin",
        "git --no-pager push",
        "git -C . push",
        "git --git-dir .git -c x=y push",
        "/usr/bin/git -C . push",
        "GIT_DIR=x git push",
        "flock x git push",
        "flock x -c 'git push'",
        "script -c 'git push' x",
        "busybox sh -c 'git push'",
        "sudo bash -c 'true && git -C . push'",
        "env -i A=1 git push",
        "sh -c \"sh -c 'git push'\"",
        "for x in y; do 'git' pu\\sh; done",
        "cat <<E\ngit push\nE",
        "export X=1; git -C . push",
    ],
)
def test_a_denial_sees_through_what_runs_it(command: str) -> None:
    assert bash(rules("allow bash: *", "deny bash: git push *"), command) is Action.DENY


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git $X", Action.ASK),
        ("git $X origin", Action.ASK),
        ("git {push,status}", Action.ASK),
        ("git p*", Action.ASK),
        ("env $X", Action.ASK),
        ("anything git push", Action.ASK),
        ("anything -e 'x; git push'", Action.ASK),
        ("ls > $X", Action.ASK),
        ("git status $X", Action.ALLOW),
        ("ls $X", Action.ALLOW),
        ("grep pushed *.py", Action.ALLOW),
        ("echo '$X git pushed'", Action.ALLOW),
    ],
)
def test_what_a_denial_may_meet_is_asked(command: str, action: Action) -> None:
    policy = Permissions(
        rules("allow bash: *", "allow bash: > *", "deny bash: git push *", "deny edit: .git/*")
    )
    assert bash(policy, command) is action
    asked = policy.decide("bash", {"command": command})
    assert bash(policy.granting(asked.grants), command) is Action.ALLOW, "a person may still grant the text"


def test_a_pattern_covers_no_more_than_it_says_of_what_the_shell_decides() -> None:
    policy = rules("allow bash: make -j??", "allow bash: lint src/*", "allow bash: make test")
    assert bash(policy, "make -j16") is Action.ALLOW
    assert bash(policy, "make -j$X") is Action.ASK
    assert bash(policy, "make $X") is Action.ASK
    assert bash(policy, "make tes?") is Action.ASK
    assert bash(policy, "lint src/*.py") is Action.ALLOW
    assert bash(policy, "lint $X/src/a.py") is Action.ASK


def test_a_call_of_another_server_is_judged_with_all_its_arguments() -> None:
    policy = Permissions(rules("allow mcp__x__run: a"))
    asked = policy.decide("mcp__x__run", {"path": "a", "code": "anything"})
    assert asked.action is Action.ASK and '"code": "anything"' in asked.asks[0]


def test_no_text_makes_it_fail_or_wait() -> None:
    policy = Permissions(rules("allow bash: *a*b*c*d*", "deny bash: *e*f*g*", "deny edit: .git/*"))
    for command in ("$(" * 20_000, "((" * 20_000, "#\n" * 30_000, "env " * 10_000, "a" * 60_000 + " $X" * 50):
        assert bash(policy, command) in {Action.ASK, Action.DENY}


def patch(*lines: str) -> dict[str, str]:
    return {"patch": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


@pytest.mark.parametrize(
    ("tool", "arguments", "action"),
    [
        ("edit", {"path": "src/a.py"}, Action.ALLOW),
        ("write", {"path": "src/a.py"}, Action.ALLOW),
        ("write", {"path": "src/../secret"}, Action.ASK),
        ("write", {"path": "/repo/src/a.py"}, Action.ALLOW),
        ("write", {"path": "/src/a.py"}, Action.ASK),
        ("write", {"path": "src/../.git/config"}, Action.DENY),
        ("read", {"path": "src/a.py"}, Action.ASK),
        ("ls", {}, Action.ALLOW),
        ("apply_patch", patch("*** Update File: src/a", " x", "-y"), Action.ALLOW),
        ("apply_patch", patch("*** Update File: src/a", "*** Move to: b", " x", "-y"), Action.ASK),
        ("apply_patch", patch("*** Add File: src/a", "+x", "*** Delete File: .git/x"), Action.DENY),
        ("apply_patch", {"patch": "?"}, Action.ASK),
        ("apply_patch", {}, Action.ASK),
        ("todo_write", {"todos": []}, Action.ASK),
    ],
)
def test_files_and_other_tools(tool: str, arguments: dict[str, object], action: Action) -> None:
    policy = rules("allow edit: src/*", "allow ls: *", "deny edit: .git/*")
    assert Permissions(policy, root="/repo").decide(tool, arguments).action is action


def test_always_grants_what_was_shown_and_nothing_else() -> None:
    policy = Permissions(rules("allow bash: ls *"), root="/repo")
    asked = policy.decide("bash", {"command": "cd pkg && ls && npm  test 'a b' && rm *.log > out"})
    whole = "cd pkg && ls && npm  test 'a b' && rm *.log > out"
    assert asked.asks == ("npm test 'a b'", whole), "where it writes depends on the folder it is in"
    assert bash(policy.granting(asked.grants), "rm *.log > out") is Action.ASK
    asked = policy.decide("bash", {"command": "npm test 'a b' && rm *.log > out"})
    assert asked.asks == ("npm test 'a b'", "rm *.log > out")
    granted = policy.granting(asked.grants)
    assert bash(granted, "npm test 'a b'") is Action.ALLOW
    assert bash(granted, 'cd x; npm "test" "a b" | ls') is Action.ALLOW
    assert bash(granted, "rm *.log > out") is Action.ALLOW
    for command in (
        "npm test",
        "npm test a b",
        "npm test 'a b' c",
        "rm *.log",
        "rm a.log > out",
        "rm '*.log' > out",
        "npm test 'a b' > out",
    ):
        assert bash(granted, command) is Action.ASK, command


def test_what_changes_later_commands_is_granted_as_a_whole() -> None:
    policy = Permissions(rules("allow bash: git *"))
    whole = "PATH=.; git status"
    asked = policy.decide("bash", {"command": whole})
    assert asked.asks == (whole,)
    granted = policy.granting(asked.grants)
    assert bash(granted, whole) is Action.ALLOW
    assert bash(granted, "PATH=.; git log") is Action.ASK
    assert bash(granted, "PATH=.") is Action.ASK


def test_inside_a_sandbox_everything_goes() -> None:
    for command in ("rm -rf /", "for x in y; do z; done", "a <<E", ""):
        assert bash(ALLOW_ALL, command) is Action.ALLOW
    assert ALLOW_ALL.decide("nothing", {}).action is Action.ALLOW


PIECES = [
    "ok",
    "bad",
    "x",
    "1",
    "if",
    "then",
    "fi",
    "do",
    "done",
    "while",
    "{",
    "}",
    "!",
    "time",
    "cd",
    "d",
    "in",
]
PIECES += [
    " ",
    " ",
    " ",
    "\n",
    ";",
    "&",
    "|",
    "&&",
    "||",
    "(",
    ")",
    "$(",
    "`",
    "'",
    '"',
    "\\",
    "\\\n",
    "$",
    "${",
]
PIECES += ["#", "<", ">", "<<", "=", "A=", "PATH=", "[", "]", "*", "?", "~", "-", "\t", "\r", "$'", "(("]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
AROUND = st.tuples(HOSTILE, st.sampled_from(["ok", "ok x"]), HOSTILE).map("".join)
STUBS = {"ok": "#!/bin/sh\n", "bad": '#!/bin/sh\necho "$@" >> "$RAN"\n'}


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs `ok` and `bad`; `bad` leaves a trace in the file $RAN."""
    place = tmp_path_factory.mktemp("stubs")
    for name, text in STUBS.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return place


def ran(stubs: Path, shell: str, command: str) -> bool:
    trace, work = stubs / "trace", stubs / "work"
    trace.unlink(missing_ok=True)
    (work / "d").mkdir(parents=True, exist_ok=True)
    environment = {"PATH": str(stubs), "RAN": str(trace), "ENV": "", "HOME": str(work)}
    with subprocess.Popen(
        [shell, "-c", command],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
    return trace.exists()


@settings(suppress_health_check=list(HealthCheck))
@given(command=HOSTILE | AROUND)
@example(command='ok "$\\\n(bad)"')
@example(command="ok `bad`")
@example(command="ok <(bad)")
@example(command="ok &>/dev/null bad")
@example(command="ok &>>x bad")
@example(command="ok &\\\n>/dev/null bad")
@example(command="ok $(ok # )\n) bad")
@example(command="ok\\\n;bad")
@example(command="A+=1 ok")
@example(command="\u00b2>x ok")
@example(command=". ok")
@example(command="eval $X")
@example(command="PATH=. ok")
@example(command="[ -v 'x[$(bad)]' ]")
@example(command="printf -v 'x[$(bad)]' 1")
def test_a_real_shell_runs_nothing_that_was_not_allowed(stubs: Path, command: str) -> None:
    allowed = ("ok *", "cd *", "time", "> *", "[ *", "printf *", "eval *", ". *", "PATH=* *", "A+=* *")
    policy = rules(*(f"allow bash: {pattern}" for pattern in allowed))
    if "while" in command or bash(policy, command) is not Action.ALLOW:
        return
    for shell in ("/bin/sh", "/bin/bash"):
        assert not Path(shell).exists() or not ran(stubs, shell, command), (shell, command)


@given(granted=AROUND, tried=AROUND)
@example(granted="ok x", tried="ok x;bad")
@example(granted="ok *", tried="ok bad")
@example(granted="ok \\*", tried="ok \\bad")
def test_a_grant_is_never_wider_than_its_text(granted: str, tried: str) -> None:
    empty = Permissions([], root="/repo")
    first, then = (empty.decide("bash", {"command": command}) for command in (granted, tried))
    after = empty.granting(first.grants).decide("bash", {"command": tried})
    if after.action is Action.ALLOW and then.action is Action.ASK:
        same = granted.strip() == tried.strip()
        assert same or set(then.asks) <= set(first.asks)


def test_a_rule_reads_as_it_is_written() -> None:
    rule = Rule.exactly("bash", "rm *.py \\ ?")
    assert rule.exact and rule.matches("rm *.py \\ ?") and not rule.matches("rm a.py \\ ?")
    assert str(rule) == r"allow bash: rm \*.py \\ \?"
    assert json.loads(json.dumps(rule.pattern)) == rule.pattern
