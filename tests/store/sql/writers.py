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


def end_and_check(
    store: Store,
    names: Sequence[str],
    writers: Sequence[subprocess.Popen[str]],
    written: Sequence[list[int]],
) -> None:
    """Kill the writers; what they said until then is in the record, once, and no call was skipped."""
    for so_far, writer in zip(written, writers, strict=True):
        with writer:
            writer.kill()
            assert writer.stdout
            so_far.extend(map(int, writer.stdout.read().split()))
        assert so_far == list(range(len(so_far))), "a call of the writer was skipped"
    check_whole(store, names, written)


def check_whole(store: Store, names: Sequence[str], written: Sequence[Sequence[int]]) -> None:
    for name, numbers in zip(names, written, strict=True):
        found = store.turns(name)
        assert len(found) % 4 == 0, "a part of a transaction was recorded"
        assert len(found) >= 4 * len(numbers) > 0
        assert found == [turn(i, name) for i in range(len(found))]
