"""A trainer's process ends however often it is asked to."""

import os
import signal
import subprocess
import sys
import time

ASKED = 400
PROGRAM = """
import time
from ostinato.train.config import SftProcess
from ostinato.train import process

def work(settings, stop):
    print("begun", flush=True)
    while not stop():
        pass
    time.sleep(0.5)  # more signals come

process.settings_of = lambda *_: None
raise SystemExit(process.run(SftProcess, work, [], "x", None))
"""


def test_many_signals_at_once_are_one() -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    for _ in range(ASKED):
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0)
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
