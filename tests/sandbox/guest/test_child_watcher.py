"""Every end of a child is reported once, with pidfds and without."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, subprocess, sys
from ostinato.sandbox.guest import child_watcher
from ostinato.sandbox.protocol.agent_link import Poller

if sys.argv[1] == "signals":
    child_watcher._PIDFDS = False
watch, ended = Poller(), []
told = child_watcher.ChildWatcher(watch)

def act(pid):
    ended.append(pid)
    told.remove(pid)
    os.waitpid(pid, 0)

started = [subprocess.Popen(["sleep", str(number / 50)]) for number in range(5)]
children = [child.pid for child in started]
for pid in children:
    told.add(pid, lambda pid=pid: act(pid))
while len(ended) < len(children):
    watch.poll_once(None)
assert sorted(ended) == sorted(children)
os._exit(0)
"""


@pytest.mark.parametrize("way", ["pidfds", "signals"])
def test_every_end_is_reported_once(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, way], capture_output=True, timeout=30, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr.decode()
