"""Cheap forks behave like others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.sandbox.linux import syscalls

GATHERED = """
import ctypes, mmap, os
from ostinato.sandbox.linux import cheap_fork

kept = [bytes([n % 251]) * 300 for n in range(20_000)]
cheap_fork.use_large_pages()
assert kept == [bytes([n % 251]) * 300 for n in range(20_000)]
child = os.fork()
if child == 0:
    kept[7] = b"another"
    os._exit(kept[8] != bytes([8]) * 300)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert kept[7] == bytes([7]) * 300
with open("/proc/self/smaps_rollup") as rollup:
    print(next(line.split()[1] for line in rollup if line.startswith("AnonHugePages")))
"""
HELD = """
import os
from ostinato.sandbox.linux import cheap_fork

cheap_fork.defer_fork_hooks()
import random, threading
random.seed(7)
first = random.Random(7).random()
read, write = os.pipe()
for release in (False, True):
    if os.fork() == 0:
        if release:
            cheap_fork.restore_fork_hooks()
        os.write(write, b"same" if random.random() == first else b"other")
        os._exit(0)
    os.wait()
    print(os.read(read, 9).decode())
cheap_fork.restore_fork_hooks()
random.seed(7)
if os.fork() == 0:
    os.write(write, b"same" if random.random() == first else b"other")
    os._exit(0)
os.wait()
print(os.read(read, 9).decode())
"""
WATCHED = """
import os, select, signal
from ostinato.sandbox.linux import syscalls

file = syscalls.watch_children()
poll = select.poll()
poll.register(file, select.POLLIN)
assert poll.poll(0) == []
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
assert poll.poll(5000) == [(file, select.POLLIN)]
heard = []
child = os.fork()
if child == 0:
    syscalls.unblock_child_signal()
    signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    os._exit(0 if heard else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def said(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_memory_in_large_pages_keeps_its_content() -> None:
    (kilobytes,) = said(GATHERED)
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    if release < (6, 1) or not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel does not collapse pages when asked")
    assert int(kilobytes) >= 2048


def test_random_numbers_are_new_after_fork_hooks_are_restored() -> None:
    assert said(HELD) == ["same", "other", "other"]


def test_a_descriptor_reports_ended_children_and_a_child_gets_its_own_signals() -> None:
    said(WATCHED)


def test_unmapped_memory_is_an_error() -> None:
    with pytest.raises(OSError, match="madvise"):
        syscalls.collapse(0, 1 << 21)
