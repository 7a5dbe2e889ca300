"""Processes that record without end, and what must be in the record afterwards."""

import subprocess
from collections.abc import Iterator, Sequence

from tests.store.builders import turn

from ostinato.store import Store

WRITE_FOREVER = """
import sys
from ostinato.store import Store
from tests.store.builders import session, turn
store, name = Store.open(sys.argv[1]), sys.argv[2]
store.start_session(session(name))
for number in range(10**9):
    store.record([turn(number * 4 + i, name) for i in range(4)])
    print(number, flush=True)
"""


def acknowledged(writer: subprocess.Popen[str], least: int) -> Iterator[int]:
    assert writer.stdout
    for _ in range(least):
        yield int(writer.stdout.readline())


def check_whole(store: Store, names: Sequence[str], written: Sequence[Sequence[int]]) -> None:
    for name, numbers in zip(names, written, strict=True):
        found = store.turns(name)
        assert len(found) % 4 == 0, "a part of a transaction was recorded"
        assert len(found) >= 4 * len(numbers) > 0
        assert found == [turn(i, name) for i in range(len(found))]
