"""A trainer's process ends however often it is asked to."""

import os
import signal
import subprocess
import sys

ASKED = 20_000
PROGRAM = """
import select
from ostinato.train.config import SftProcess
from ostinato.train import process

def work(settings, stop):
    print("begun", flush=True)
    while not stop():
        pass
    while not select.select([0], [], [], 0)[0]:  # a signal now interrupts the handler of the one before
        pass

process.settings_of = lambda *_: None
raise SystemExit(process.run(SftProcess, work, [], "x", None))
"""


def test_many_signals_at_once_are_one() -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    for _ in range(ASKED):
        os.kill(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
