"""Calls of the tools in a real sandbox, right and wrong ones.

Covers harness/execute.py, harness/errors.py, harness/tools/files.py, harness/tools/definitions.py and
harness/providers/base.py.
"""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.harness.errors import (
    InvalidArguments,
    ProviderError,
    ToolTimeout,
    UnexpectedEnvironment,
    UserAborted,
)
from ostinato.harness.execute import Executor
from ostinato.harness.profiles.profile import PROFILES, Profile
from ostinato.harness.providers.base import Hit, Providers
from ostinato.harness.tools.definitions import CATALOGUE, TOOLS
from ostinato.harness.tools.files import READ_LINES
from ostinato.harness.tools.names import shown
from ostinato.harness.users import SilentUser
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Sandbox, SandboxError, Spec

SCALARS = st.one_of(
    st.text(max_size=20), st.integers(), st.booleans(), st.none(), st.lists(st.text(max_size=3), max_size=2)
)
FILE_TOOLS = ["read", "write", "edit", "ls"]


async def said(tools: Executor, name: str, **arguments: object) -> str:
    return (await tools.run(name, arguments)).text


async def test_read(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.write("calc.py", b"def alpha(a, b):\r\n\treturn a - b\r\n")
    assert await said(tools, "read", path="calc.py") == "def alpha(a, b):\n\treturn a - b"
    assert await said(tools, "read", path="calc.py", offset=2) == "\treturn a - b"
    assert await said(tools, "read", path="calc.py", offset=1, limit=1) == (
        "def alpha(a, b):\n[1 more lines, continue with offset 2]"
    )
    assert await said(tools, "read", path="calc.py", offset=3) == "error: the file has 2 lines"
    assert await said(tools, "read", path="none.py") == "error: no such file none.py"
    assert await said(tools, "read", path="pkg") == "error: pkg is a directory"
    assert await said(tools, "read", path="calc.py/x") == "error: calc.py/x is not a directory"
    assert await said(tools, "read", path="calc.py/") == "error: calc.py/ is not a directory"
    assert await said(tools, "write", path="new/", content="x") == "error: new/ is not a directory"
    assert await said(tools, "read", path="../x") == "error: ../x is outside the repository"
    await sandbox.write("blob", b"\xff\x00")
    assert await said(tools, "read", path="blob") == "error: blob is not text"
    await sandbox.write("empty", b"")
    assert await said(tools, "read", path="empty") == "(empty)"
    await sandbox.write("long", b"x\n" * 3000)
    end = f"[1000 more lines, continue with offset {READ_LINES + 1}]"
    assert (await said(tools, "read", path="long")).endswith(end)


async def test_the_rest_of_a_long_line_can_be_read(tools: Executor, sandbox: Sandbox) -> None:
    for head, line, encoding in (("", "é" * 30_000, "utf-8"), ("\ufeff", "x" * 52_000, "utf-16-le")):
        await sandbox.write("it's long", f"{head}{line * 2}\nlast\n".encode(encoding))
        text = await said(tools, "read", path="it's long")
        shown, cut, after = text.split("\n")
        assert after == "[1 more lines, continue with offset 2]"
        assert cut.startswith(f"[cut: {2 * len(line) - 50_000} more characters of line 1, ")
        rest = await said(tools, "bash", command=cut[:-1].partition("line 1, ")[2])
        assert (line * 2)[50_000:].startswith(rest) and len(rest) > 9_000
        assert shown == (line * 2)[:50_000]


@pytest.mark.parametrize(
    ("name", "encoding"), [("-dash", "utf-8"), ("by\udce9\n'%te", "utf-8"), ("old", "latin-1")]
)
async def test_the_rest_is_read_whatever_the_name_and_the_encoding(
    tools: Executor, sandbox: Sandbox, name: str, encoding: str
) -> None:
    await sandbox.write(name, ("é" * 60_000 + "\n").encode(encoding))
    text = await said(tools, "read", path=shown(name))
    rest = await said(tools, "bash", command=text.partition("line 1, ")[2][:-1])
    assert rest == "é" * 10_000


async def test_lines_are_those_of_git(tools: Executor, sandbox: Sandbox) -> None:
    data = "a\x0b\x0c\x85\u2028\rb\r\nmark\r\n".encode()
    await sandbox.write("odd.txt", data)
    await sandbox.write("latin.txt", b"caf\xe9 mark\n")
    await sandbox.write("min.js", b"mark" + b"x" * 600)
    assert await said(tools, "read", path="odd.txt", offset=2) == "mark"
    wanted = (
        "latin.txt:1:café mark\nmin.js:1:mark" + "x" * 496 + " [cut: 104 more characters, read with offset 1]"
    )
    for prepare in ("true", "rm -r .git"):
        await sandbox.exec(prepare)
        assert await said(tools, "grep", pattern="mark") == f"{wanted}\nodd.txt:2:mark"
    await sandbox.write("many", b"mark " + b"y" * 300 + b"\n" + b"mark\n" * 9_000)
    last = (await said(tools, "grep", pattern="mark")).split("\n")[-1]
    assert last == "[8904 more matches, narrow the search]"


async def test_a_full_disk_loses_no_file(tools: Executor, sandbox: Sandbox) -> None:
    write, before = sandbox.write, await sandbox.read("calc.py")

    async def refusing(path: str, data: bytes) -> None:
        await write(path, data[:1] if data != before else data)
        if data != before:
            raise OSError(28, "No space left on device")

    sandbox.write = refusing  # type: ignore[method-assign]
    assert (
        await said(tools, "write", path="calc.py", content="x") == "error: calc.py: No space left on device"
    )
    assert await sandbox.read("calc.py") == before


async def test_write(tools: Executor, sandbox: Sandbox) -> None:
    assert await said(tools, "write", path="new/deep.py", content="é\n") == "ok"
    assert await sandbox.read("new/deep.py") == "é\n".encode()
    assert await said(tools, "write", path="pkg", content="") == "error: pkg is a directory"
    assert await said(tools, "write", path="/etc/x", content="") == "error: /etc/x is outside the repository"
    assert (await said(tools, "write", path="x" * 300, content="")).startswith("error: " + "x" * 300)


async def test_edit(tools: Executor, sandbox: Sandbox) -> None:
    assert await said(tools, "edit", path="calc.py", old_string="a - b", new_string="a + b") == "ok"
    assert b"a + b" in await sandbox.read("calc.py")
    assert await said(tools, "edit", path="calc.py", old_string="return a * b", new_string="") == (
        "error: old_string not found; nearest:\n    return a + b"
    )
    edit = {"path": "none.py", "old_string": "a", "new_string": "b"}
    assert await said(tools, "edit", **edit) == "error: no such file none.py"


async def test_bash(tools: Executor, sandbox: Sandbox) -> None:
    assert await said(tools, "bash", command="cat calc.py | head -1") == "def alpha(a, b):"
    assert await said(tools, "bash", command="pwd; echo $PWD/calc.py") == ".\ncalc.py"
    assert await said(tools, "bash", command="echo '1 failed in 0.03s'; exit 1") == "1 failed\n[exit code 1]"
    assert await said(tools, "bash", command="exit 3") == "[exit code 3]"
    assert await said(tools, "bash", command="true") == "(no output)"
    assert await said(tools, "bash", command="echo up; kill -9 $$") == "up\n[exit code 137: SIGKILL]"
    assert await said(tools, "bash", command="(kill -15 0)") == "[exit code 143: SIGTERM]"
    late = await tools.run("bash", {"command": "echo begun; sleep 9", "timeout": 1})
    assert late.text == "error: timed out after 1 s\nbegun"
    assert isinstance(late.error, ToolTimeout)
    assert not late.broken
    capped = await tools.run("bash", {"command": "sleep 9", "timeout": 1000})
    assert capped.text == "error: timed out after 2 s"


@pytest.mark.parametrize("length", [20_000, 20_001, 20_010, 20_100, 90_000])
async def test_output_that_is_cut_says_how_much(tools: Executor, length: int) -> None:
    assert await said(tools, "bash", command="echo '[5 bytes left out]'; echo a") == "[5 bytes left out]\na"
    text = await said(tools, "bash", command=f"head -c {length} /dev/zero | tr '\\0' x; exit 4")
    cut, _, shown = text.rpartition("\n[exit code 4]")[0].rpartition("]\n")
    assert len(shown) == 20_000
    assert cut.startswith(f"[cut: {length - 20_000} bytes before this") if length > 20_000 else not cut


async def test_grep(tools: Executor, sandbox: Sandbox) -> None:
    assert await said(tools, "grep", pattern="alph[a]") == (
        "calc.py:1:def alpha(a, b):\npkg/util.py:1:from calc import alpha"
    )
    assert await said(tools, "grep", pattern="alpha", path="pkg") == "pkg/util.py:1:from calc import alpha"
    assert await said(tools, "grep", pattern="alpha", glob="c*.py", limit=1) == "calc.py:1:def alpha(a, b):"
    assert (
        await said(tools, "grep", pattern="return", limit=1)
        == "calc.py:2:    return a - b\n[1 more matches, narrow the search]"
    )
    assert await said(tools, "grep", pattern="nowhere") == "no matches"
    assert (await said(tools, "grep", pattern="(")).startswith("error: ")
    assert await said(tools, "grep", pattern="x", path="none") == "error: no such file none"
    assert await said(tools, "grep", pattern="x", path="../..") == "error: ../.. is outside the repository"
    assert await said(tools, "grep", pattern="-e; touch '; touch made") == "no matches"
    assert "made" not in await sandbox.files()
    assert ".git" not in await said(tools, "grep", pattern="main|alpha")
    assert await said(tools, "grep", pattern=r"(?i)X\[\d]") == "calc.py:6:    return x[1]"
    assert await said(tools, "grep", pattern=r"(?<=x)y") == (
        "error: an extended regular expression has no (?<"
    )
    assert await said(tools, "grep", pattern="alpha", path=f"{sandbox.root}/pkg") == (
        "pkg/util.py:1:from calc import alpha"
    )
    wide = await said(tools, "grep", pattern="alpha", glob="*.{py,md}")
    assert wide == await said(tools, "grep", pattern="alpha")


@pytest.mark.parametrize("is_git", [False, True])
async def test_grep_reads_utf_16(tools: Executor, sandbox: Sandbox, is_git: bool) -> None:
    texts = {"little.txt": "utf-16-le", "-big of.txt": "utf-16-be", "ignored.txt": "utf-16-le"}
    for name, encoding in texts.items():
        await sandbox.write(name, ("\ufeffone\r\nfind mé\r\n").encode(encoding))
    await sandbox.write("picture", b"\xff\xfefind\n\0")
    await sandbox.write(".gitignore", b"ignored.txt\n")
    await sandbox.exec("git init -q" if is_git else "rm -rf .git")
    found = ["-big of.txt:2:find mé", *([] if is_git else ["ignored.txt:2:find mé"]), "little.txt:2:find mé"]
    assert await said(tools, "grep", pattern="find m") == "\n".join(found)
    assert await said(tools, "grep", pattern="ONE|mé", glob="lit*") == "little.txt:2:find mé"


async def test_grep_names_what_it_cannot_read(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.write("whole.txt", "\ufefffind me\n".encode("utf-16-le"))
    await sandbox.write("plain.txt", b"find me\n")
    broken = (
        "\ufefffind me\nmore\n".encode("utf-16-le") + b"\0\xd8x"
    )  # half of a pair, and half of a character
    await sandbox.write("broken.txt", broken)
    left_out = "\n[not searched, since iconv here cannot convert their UTF-16: {}]"
    said_of_it = await said(tools, "grep", pattern="find")
    assert said_of_it.startswith("broken.txt:1:find me\nplain.txt:1:") and said_of_it.endswith(
        left_out.format("broken.txt")
    )
    kept = "env git grep xargs sh"
    await sandbox.exec(f'mkdir bin; for each in {kept}; do ln -s "$(command -v $each)" bin/$each; done')
    started = sandbox.start
    sandbox.start = lambda command, **more: started(f"PATH=$PWD/bin\n{command}", **more)  # type: ignore[method-assign]
    found = await said(tools, "grep", pattern="find", glob="*.txt")
    assert found == "plain.txt:1:find me" + left_out.format("broken.txt, whole.txt")


async def test_ls(tools: Executor) -> None:
    assert await said(tools, "ls") == "calc.py\npkg/"
    assert await said(tools, "ls", path="pkg") == "util.py"
    assert await said(tools, "ls", path="calc.py") == "error: calc.py is not a directory"
    assert await said(tools, "ls", path="none") == "error: no such file none"


async def test_a_link_that_leads_to_itself_is_a_name(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.exec("ln -s loop loop; mkfifo pipe")
    assert await said(tools, "ls") == "calc.py\nloop\npipe\npkg/"
    assert (await said(tools, "read", path="pipe")).startswith("error: pipe: ")
    assert (await said(tools, "read", path="loop")).startswith("error: ")


async def test_ask_user(tools: Executor, user) -> None:
    assert await said(tools, "ask_user", question="which?", options=["+", "-"]) == "use +"
    assert user.questions == ["which? (+ / -)"]
    declined = await tools.run("ask_user", {"question": "and now?"})
    assert isinstance(declined.error, UserAborted)
    assert declined.text == "error: the user did not answer"


async def test_a_link_out_of_the_repository_is_not_followed(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.exec("ln -s /etc/hostname out")
    edit = {"old_string": "a", "new_string": "b"}
    for name, more in (("read", {}), ("write", {"content": ""}), ("edit", edit)):
        assert await said(tools, name, path="out", **more) == "error: out is outside the repository"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("open", {}, "unknown tool open, use read write edit bash grep ls ask_user"),
        ("\ud800", {}, "unknown tool ?, use read write edit bash grep ls ask_user"),
        ("read", {}, "read needs path"),
        ("read", {"path": 3}, "read: path must be string"),
        ("read", {"path": "a", "offset": True}, "read: offset must be integer"),
        ("read", {"path": "a", "mode": "r"}, "read has no argument mode, use path offset limit"),
        ("read", {"path": "calc.py", "limit": 0}, "offset and limit start at 1"),
        ("bash", {"command": "a\0b"}, "bash: command is not text"),
        ("bash", {"command": "ls", "timeout": 0}, "timeout is at least 1 second"),
        ("write", {"path": "a", "content": "\ud800"}, "write: content is not text"),
        ("ask_user", {"question": "q", "options": [3]}, "ask_user: options must be a list of strings"),
    ],
)
async def test_a_wrong_call_is_named_and_broken(tools: Executor, name, arguments, message: str) -> None:
    observation = await tools.run(name, arguments)
    assert observation.text == f"error: {message}"
    assert isinstance(observation.error, InvalidArguments)
    assert observation.broken


async def test_what_the_model_met_unexpectedly_is_not_its_fault(tools: Executor) -> None:
    observation = await tools.run("read", {"path": "none"})
    assert isinstance(observation.error, UnexpectedEnvironment)
    assert not observation.broken


async def test_what_is_no_file_is_not_our_failure(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.exec("mkfifo pipe")
    observation = await tools.run("read", {"path": "pipe"})
    assert observation.text.startswith("error: pipe: ")
    assert not observation.broken


async def test_a_dead_sandbox_is_our_failure(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.destroy()
    for name, arguments in (("read", {"path": "calc.py"}), ("bash", {"command": "ls"})):
        with pytest.raises(SandboxError, match="destroyed"):
            await tools.run(name, arguments)


@given(data=st.data())
async def test_any_call_gets_an_answer(tools: Executor, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILE_TOOLS))
    properties = sorted(CATALOGUE[name]["function"]["parameters"]["properties"])
    arguments = data.draw(st.dictionaries(st.sampled_from(properties), SCALARS | st.just("calc.py")))
    assert (await tools.run(name, arguments)).text


def test_tools_are_plain_schemas() -> None:
    assert [tool["function"]["name"] for tool in TOOLS] == [
        "read",
        "write",
        "edit",
        "bash",
        "grep",
        "ls",
        "ask_user",
    ]
    assert all(tool["function"]["description"] for tool in TOOLS)


async def test_output_is_shown_as_it_comes(sandbox: Sandbox, user) -> None:
    pieces: list[str] = []
    tools = Executor(sandbox, user, command_timeout_s=2.0)
    wait = "for i in 1 2 3 4 5 6 7 8 9; do test -e gone && break; sleep 0.2; done"
    command = {"command": f"printf 'caf\\303'; {wait}; printf '\\251'"}
    running = asyncio.ensure_future(tools.run("bash", command, pieces.append))
    while not pieces and not running.done():
        await asyncio.sleep(0.01)
    assert not running.done()
    await sandbox.write("gone", b"")
    assert (await running).text == "café"
    assert "".join(pieces) == "café"


def guarded(sandbox: Sandbox, user) -> Executor:
    profile = Profile(name="guarded", offers=PROFILES["full"].offers, read_before_edit=True)
    return Executor(sandbox, user, command_timeout_s=2.0, profile=profile)


async def test_a_profile_may_want_files_read_before_they_change(sandbox: Sandbox, user) -> None:
    tools = guarded(sandbox, user)
    edit = {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
    patch = "*** Begin Patch\n*** Update File: calc.py\n-def beta(x):\n+def beta(y):\n*** End Patch"
    for name, arguments in (
        ("edit", edit),
        ("write", {"path": "./calc.py", "content": ""}),
        ("apply_patch", {"patch": patch}),
    ):
        observation = await tools.run(name, arguments)
        assert observation.text.startswith("error: read ") and observation.text.endswith(
            "before you change it"
        )
        assert not observation.broken
    assert await said(tools, "write", path="new.py", content="x") == "ok"
    assert await said(tools, "write", path="new.py", content="y") == "ok"
    assert (await said(tools, "read", path="./calc.py")).startswith("def alpha")
    assert await said(tools, "edit", **edit) == "ok"
    await sandbox.exec("echo >> calc.py")
    changed = "error: calc.py changed since you read it: read it again"
    assert await said(tools, "apply_patch", patch=patch) == changed
    await tools.run("read", {"path": "calc.py", "limit": 1})
    assert await said(tools, "apply_patch", patch=patch) == "ok"
    assert (
        await said(tools, "write", path="calc.py", content="") == "error: read calc.py before you change it"
    )


async def test_a_search_is_asked_and_its_absence_is_said(sandbox: Sandbox, user) -> None:
    class Found:
        async def search(self, query: str, *, path: str | None, k: int) -> list[Hit]:
            if query == "down":
                raise ProviderError("the search service does not answer")
            return [Hit(path=path or "calc.py", first=1, last=2, text=query)] * k

    full = PROFILES["full"]
    alone = Executor(sandbox, user, command_timeout_s=2.0, profile=full)
    observation = await alone.run("semantic_search", {"query": "sum"})
    assert observation.text.startswith("error: no search service: set OSTINATO_SEARCH_URL")
    assert isinstance(observation.error, ProviderError)
    tools = Executor(sandbox, user, command_timeout_s=2.0, profile=full, providers=Providers(search=Found()))
    assert await said(tools, "semantic_search", query="sum", k=2) == "calc.py:1-2\nsum\n\ncalc.py:1-2\nsum"
    assert await said(tools, "semantic_search", query="down") == "error: the search service does not answer"


SHOP = {
    ".gitignore": "node_modules/\n/build\n*.log\n!kept.log\n",
    "pkg/.gitignore": "made_*.py\n",
    "build/out.py": "coin",
    "docs/build/in.py": "coin: 1:2",
    "node_modules/x/a.py": "coin",
    "pkg/deep/run.log": "coin",
    "pkg/kept.log": "coin",
    "pkg/made_a.py": "coin",
    "tracked.log": "coin",
    "new é.py": "coin",
}


async def shop(sandbox: Sandbox) -> None:
    for path, text in SHOP.items():
        await sandbox.write(path, text.encode())
    await sandbox.exec("git add -f tracked.log")


async def test_what_git_ignores_is_not_found(tools: Executor, sandbox: Sandbox, user) -> None:
    await shop(sandbox)
    assert await said(tools, "grep", pattern="coin") == (
        "docs/build/in.py:1:coin: 1:2\nnew é.py:1:coin\npkg/kept.log:1:coin\ntracked.log:1:coin"
    )
    assert await said(tools, "grep", pattern="coin", path="./pkg/") == "pkg/kept.log:1:coin"
    assert await said(tools, "grep", pattern="coin", path="docs/build/in.py", glob="i*.py") == (
        "docs/build/in.py:1:coin: 1:2"
    )
    assert await said(tools, "grep", pattern="coin", path="docs", glob="*.log") == "no matches"
    full = Executor(sandbox, user, command_timeout_s=2.0, profile=PROFILES["full"])
    assert await said(full, "glob", pattern="*.{py,log}") == (
        "calc.py\ndocs/build/in.py\nnew é.py\npkg/kept.log\npkg/util.py\ntracked.log"
    )


async def test_the_rules_of_a_machine_do_not_count(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.exec("printf 'calc.py' > rules; git config core.excludesFile $PWD/rules; rm -r .git/index")
    assert await said(tools, "grep", pattern="alph[a]", path="calc.py") == "calc.py:1:def alpha(a, b):"


@pytest.mark.parametrize("pattern", ["alpha", r"\balph|ret[u]rn +x", "(", "a{1"])
async def test_without_git_the_same_is_found(tools: Executor, sandbox: Sandbox, pattern: str) -> None:
    globs = [{}, {"glob": "*.py"}, {"glob": "[cu]*"}, {"glob": "*.{py,c}"}, {"glob": "pkg/*.py"}]
    asked = [{**where, **glob} for where in ({}, {"path": "pkg"}, {"path": "calc.py"}) for glob in globs]
    within = [await said(tools, "grep", pattern=pattern, **each) for each in asked]
    await sandbox.exec("rm -r .git")
    assert [await said(tools, "grep", pattern=pattern, **each) for each in asked] == within


async def test_without_a_repository_every_file_is_looked_at(tools: Executor, sandbox: Sandbox, user) -> None:
    await shop(sandbox)
    await sandbox.exec("rm -r .git; ln -s /etc/passwd link.py")
    assert "build/out.py:1:coin" in await said(tools, "grep", pattern="coin")
    assert "node_modules" not in await said(tools, "grep", pattern="coin")
    full = Executor(sandbox, user, command_timeout_s=2.0, profile=PROFILES["full"])
    assert "build/out.py" in await said(full, "glob", pattern="*.py")


async def test_glob(sandbox: Sandbox, user) -> None:
    tools = Executor(sandbox, user, command_timeout_s=2.0, profile=PROFILES["full"])
    assert await said(tools, "glob", pattern="*.py") == "calc.py\npkg/util.py"
    assert await said(tools, "glob", pattern="*.py", limit=1) == "calc.py\n[1 more files, narrow the search]"
    assert await said(tools, "glob", pattern="*.c") == "no files"
    assert await said(tools, "glob", pattern="*", path="../x") == "error: ../x is outside the repository"


async def test_the_shell_is_bash_where_there_is_one(tools: Executor, sandbox: Sandbox) -> None:
    await sandbox.write("start.sh", b"echo started; ls() { echo shadowed; }\n")
    given = (
        "set -o pipefail; [[ a == a ]] && echo {1..3} $'\\x41' && diff <(echo x) <(echo x) && false | true"
    )
    assert await said(tools, "bash", command=given) == "1 2 3 A\n[exit code 1]"
    assert (
        await said(tools, "bash", command="BASH_ENV=start.sh; export BASH_ENV; (exit 3)") == "[exit code 3]"
    )
    assert await said(tools, "bash", command="echo \"it's $((6 * 7))\" '$c' # done") == "it's 42 $c"
    assert await said(tools, "bash", command="export PATH=/nowhere; read x < start.sh; echo $x") == (
        "echo started; ls() { echo shadowed; }"
    )
    assert "unexpected" in await said(tools, "bash", command="if true; do")
    assert await said(tools, "bash", command="kill -9 $$") == "[exit code 137: SIGKILL]"


async def test_without_bash_the_shell_of_the_system_runs_it(repo: Path) -> None:
    backend = ProcessBackend()
    sandbox = await backend.create(Spec(repo=repo, environment={"PATH": "/nowhere"}))
    tools = Executor(sandbox, SilentUser(), command_timeout_s=20)
    assert await said(tools, "bash", command="echo one && echo 'it is' \"two\"; exit 4") == (
        "one\nit is two\n[exit code 4]"
    )
    await backend.aclose()
