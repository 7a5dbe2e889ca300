"""Makes the recorded session of docs/code.md: `python -m tests.harness.record`.

A real `ostinato code` on a real pty in a real repository, against a real gateway; only the model is a script,
and the person types what stands here.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.scripted_gateway import scripted_gateway
from tests.harness.story import call_text
from tests.harness.terminal import Terminal

from ostinato.gateway.access.keys import hash_key
from ostinato.store import Store

CALC = "def mean(values):\n    return sum(values) / len(values) + 1\n"
CHECK = "from calc import mean\n\nprint('mean([1, 3]) is', mean([1, 3]))\n"
FIX = {"path": "calc.py", "old_string": "len(values) + 1", "new_string": "len(values)"}
CHECKING = call_text("bash", command="python3 check.py && echo it should be 2")
STORY = [
    "I look at the code first.\n" + call_text("read", path="calc.py"),
    CHECKING,
    call_text("edit", **FIX),
    CHECKING,
    "mean added 1 to every result; it no longer does. The check says 2.0.",
    call_text("bash", command="rm -rf tests && git push"),
    "I leave it alone.",
]


async def recorded(*, colours: bool = False) -> str:
    """Return what stood on the screen, with the terminal's escape sequences where `colours` are wanted."""
    place = Path(tempfile.mkdtemp(prefix="ostinato-record-"))
    try:
        store = Store.open(place / "store.db")
        store.add_key(hash_key("key"), "ada")
        async with scripted_gateway(place, store, list(STORY)) as url:
            at = await _played(_repository(place / "stats"), url, place / "state")
            return _told(at.raw if colours else at.screen, place / "stats")
    finally:
        shutil.rmtree(place)


def _repository(repo: Path) -> Path:
    repo.mkdir()
    (repo / "calc.py").write_text(CALC)
    (repo / "check.py").write_text(CHECK)
    (repo / ".gitignore").write_text("__pycache__/\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", "-C", str(repo), *identity, *command], check=True)
    return repo


async def _played(repo: Path, url: str, state: Path) -> Terminal:
    key = state.parent / "key"
    key.write_text("key\n")
    options = ("--directory", str(repo), "--url", url, "--key-file", str(key), "--deny", "bash: git push *")
    async with Terminal("--plain", *options, home=state) as at:
        await at.until("> ")
        at.type("the mean is off by one\n")
        await at.until("Enter > ")
        at.type("a\n")
        await at.until("tokens")
        await at.until("> ")
        at.type("clean up and push\n")
        await at.until("tokens")
        await at.until("> ")
        at.type("/undo\n")
        await at.until("> ")
        at.type("/quit\n")
        await at.ended()
        return at


def _told(screen: str, repo: Path) -> str:
    """Remove the parts that differ from one machine to the next."""
    text = screen.replace(str(repo), "~/stats").replace(str(repo.resolve()), "~/stats")
    text = re.sub(r"--resume \w+", "--resume 0c1f7a", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.stdout.write(asyncio.run(recorded()) + "\n")
