"""Publishes for ever in a child process and kills it, many times: `python -m … FOLDER KILLS`.

Prints what each child had acknowledged last. One import of torch serves all children, which are forked.
"""

import json
import os
import random
import signal
import sys
import time

import torch
from tests.sync.builders import weights

from ostinato.store import Objects
from ostinato.sync import Publisher

WIDTH = 4000


def publish_for_ever(folder: str, out: int) -> None:
    torch.set_num_threads(1)
    publisher = Publisher(Objects.open(folder))
    version = publisher.resume()
    if version is None:
        version = 0
        publisher.anchor(0, weights(0, width=WIDTH))
    while True:
        os.write(out, version.to_bytes(4))
        version += 1
        publisher.delta(version, weights(version, width=WIDTH))


def publish_until_killed(folder: str, seconds: float) -> int:
    """The last version the child acknowledged."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        publish_for_ever(folder, write)
    os.close(write)
    last = int.from_bytes(os.read(read, 4))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while word := os.read(read, 4):
        last = int.from_bytes(word)
    os.close(read)
    return last


def main(folder: str, kills: str) -> None:
    pause = random.Random(7)
    print(json.dumps([publish_until_killed(folder, pause.uniform(0.02, 0.2)) for _ in range(int(kills))]))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
