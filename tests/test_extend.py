"""Plug-ins that are found, refused, inherited and bounded; each in a process of its own.

Covers extend.py, and config.py's `use`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FACT = """
import ostinato as o
@o.live_fact("green")
def green(session):
    return o.Fact(value=1.0)
"""


def python(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(folder: Path, name: str, more: str = "") -> str:
    """The words of the error that a plug-in meets, which must leave nothing behind."""
    program = f"""
import ostinato
from ostinato.extend import INHERITED
import os, sys
{more}
from ostinato.rewards.live.facts import READERS
before = set(READERS), set(sys.modules)
try:
    ostinato.use({name!r})
except ostinato.PluginError as error:
    print(error)
assert set(READERS) == before[0], set(READERS) ^ before[0]
assert INHERITED not in os.environ or {more!r}
"""
    done = python(program, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (FACT + "def broken(:\n", ["line 6", "SyntaxError"]),
        (FACT + "1 / 0\n", ["my_team.py line 6", "ZeroDivisionError"]),
        (FACT + "import nowhere_at_all\n", ["line 6", "nowhere_at_all"]),
        (FACT.replace("green", "kept"), ["ostinato itself has a live fact kept already"]),
        (FACT + FACT, ["my_team.py has a live fact green already"]),
        (FACT.replace('"green"', '"a b"'), ["'a b' is no name"]),
        (FACT + "raise SystemExit\n", ["line 6", "SystemExit"]),
    ],
)
def test_a_plugin_that_fails_names_its_line_and_leaves_nothing(
    tmp_path: Path, source: str, words: list[str]
) -> None:
    (tmp_path / "my_team.py").write_text(source)
    said = refusal(tmp_path, "my_team.py")
    assert all(each in said for each in words), said


def test_one_that_is_not_there_or_hangs_is_refused(tmp_path: Path) -> None:
    assert "there is no missing.py" in refusal(tmp_path, "missing.py")
    (tmp_path / "slow.py").write_text(f"{FACT}\nimport time\ntime.sleep(100)\n")
    assert "did not end within 0.2 s and was at" in refusal(
        tmp_path, "slow.py", "from ostinato import extend; extend.LOAD_S = 0.2"
    )
    (tmp_path / "json.py").write_text("")
    assert "a module json is loaded already" in refusal(tmp_path, "json.py")


def test_two_plugins_cannot_have_one_name(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(FACT)
    said = refusal(tmp_path, "two.py", "ostinato.use('one.py')")
    assert "one.py has a live fact green already" in said and "two.py" in said


def test_a_package_and_an_installed_entry_point_are_plugins(tmp_path: Path) -> None:
    package = tmp_path / "team"
    package.mkdir()
    (package / "__init__.py").write_text("from team import facts")
    (package / "facts.py").write_text(FACT)
    installed = tmp_path / "site"
    (installed / "payments-1.0.dist-info").mkdir(parents=True)
    (installed / "payments-1.0.dist-info" / "METADATA").write_text("Name: payments\nVersion: 1.0\n")
    (installed / "payments-1.0.dist-info" / "entry_points.txt").write_text("[ostinato]\npay = payments\n")
    (installed / "payments.py").write_text(FACT.replace("green", "paid"))
    program = """
import ostinato
team, pay = ostinato.use("team"), ostinato.use("pay")
from ostinato.rewards.live.facts import READERS
assert READERS.digest("green") == team.digest and READERS.digest("paid") == pay.digest != team.digest
assert ostinato.use("team") is team
assert len(team.files) == 2
"""
    done = python(program, tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr


CHILD = """
from ostinato import extend
extend.inherit()
from ostinato.rewards.live.facts import READERS
READERS["green"]
"""


def test_children_load_the_same_source_or_refuse(tmp_path: Path) -> None:
    (tmp_path / "my_team.py").write_text(FACT)
    program = f"""
import subprocess, sys, ostinato
ostinato.use("my_team.py")
for more in ("", "# another"):
    open("my_team.py", "a").write(more)
    child = subprocess.run([sys.executable, "-c", {CHILD!r}], cwd="/", capture_output=True, text=True)
    print(child.returncode, child.stderr.strip().splitlines()[-1:])
"""
    first, second = python(program, tmp_path).stdout.splitlines()
    assert first == "0 []"
    assert second.startswith("1") and "was changed while what uses it is running" in second


def test_what_nobody_names_is_not_loaded(tmp_path: Path) -> None:
    """A repository that somebody works in may have any file in it."""
    for name in ("ostinato_plugin.py", "my_team.py", "conftest.py", "sitecustomize.py"):
        (tmp_path / name).write_text("open('loaded', 'a')")
    done = python("import sys; from ostinato.cli import main; sys.exit(main(['doctor', '--help']))", tmp_path)
    assert "usage: ostinato doctor" in done.stdout and not (tmp_path / "loaded").exists()


def test_a_settings_file_names_plugins_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my_team.py").write_text(FACT)
    (tmp_path / "live.toml").write_text(
        'use = ["my_team.py"]\nname = "ours"\n[parts.kept]\nweight = 1.0\n[parts.green]\nweight = 0.5\n'
    )
    (tmp_path / "run.toml").write_text('use = ["my_team.py"]\n[live]\nreward = "live.toml"\n')
    program = f"""
import ostinato
ostinato.use({str(tmp_path / "my_team.py")!r})
from pathlib import Path
from ostinato.config import dump, load
from ostinato.loop.config import RunConfig
from ostinato.rewards.live.definition import read_definition
definition = read_definition(Path({str(tmp_path / "live.toml")!r}))
config = load(RunConfig, Path({str(tmp_path / "run.toml")!r}))
assert config.use == ({str(tmp_path / "my_team.py")!r},)
Path("kept.toml").write_text(dump(config))
assert load(RunConfig, Path("kept.toml")) == config
print(definition.hash())
"""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = python(program, elsewhere)
    assert first.returncode == 0, first.stderr
    (tmp_path / "my_team.py").write_text(f"{FACT}# another reward\n")
    assert python(program, elsewhere).stdout != first.stdout
    (tmp_path / "run.toml").write_text("use = 'my_team.py'\n")
    assert "write a list of plug-ins" in python(program, elsewhere).stderr


def test_settings_of_a_stranger_load_nothing(tmp_path: Path) -> None:
    """Such as those of a run folder in a repository that somebody else wrote."""
    (tmp_path / "my_team.py").write_text(f"{FACT}\nopen('loaded', 'a')\n")
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"use = ['{tmp_path / 'my_team.py'}']\n")
    reading = f"""
from pathlib import Path
from ostinato.config import load
from ostinato.loop.config import RunConfig
load(RunConfig, Path({str(folder / "config.toml")!r}))
"""
    refused = python(reading, tmp_path)
    assert refused.returncode and not (tmp_path / "loaded").exists()
    assert "which you have not used before" in refused.stderr
    assert "ostinato --use" in refused.stderr
    assert python("import ostinato; ostinato.use('my_team.py')", tmp_path).returncode == 0
    assert python(reading, tmp_path).returncode == 0
    assert (tmp_path / "config" / "ostinato" / "plugins").read_text() == f"{tmp_path / 'my_team.py'}\n"


BROKEN = """
import ostinato as o, time
@o.live_fact("green")
def green(session):
    if session.signals:
        {does}
    return o.Fact(value=1.0)
"""


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("raise KeyError('who')", "my_team.py line 6, KeyError"),
        ("time.sleep(100)", "did not end within 0.2 s and was at"),
        ("return o.Fact(value=7.0)", "does not lie between 0 and 1"),
    ],
)
@pytest.mark.parametrize("thread", [False, True])
def test_a_fact_that_fails_costs_the_session_it_failed_on(
    tmp_path: Path, does: str, words: str, thread: bool
) -> None:
    if thread:
        does = does.replace("time.sleep(100)", "exec('while True: pass')")
    (tmp_path / "my_team.py").write_text(BROKEN.format(does=does))
    program = f"""
import json, logging, sys, threading
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from ostinato import extend
extend.CALL_S = 0.2
extend.use("my_team.py")
from ostinato.rewards.live.definition import LiveDefinition, LivePart
from ostinato.types import SignalKind
from tests.rewards.builders import signal, turn
logging.basicConfig()
ours = LiveDefinition(name="ours", parts={{"green": LivePart(weight=1.0)}})
def score():
    for signals in ((), [signal(SignalKind.COMMENT, "x", 1.0)]):
        settled = ours.settled("s", [turn()], signals, as_of=1e9)
        print(json.dumps(None if settled is None else settled.total))
if {thread}:
    working = threading.Thread(target=score)
    working.start()
    working.join()
else:
    score()
"""
    done = python(program, tmp_path)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [1.0, None], done.stderr
    assert words in done.stderr
